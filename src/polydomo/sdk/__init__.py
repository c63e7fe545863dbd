"""The SDK: clients, workers, their sync twins, and a test kit.

Names are loaded on first use, so that `import polydomo` stays cheap for a broker, and pytest can load the plugin
without the rest of the SDK.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polydomo.sdk.client import Client
    from polydomo.sdk.codecs import BodyError, Codec
    from polydomo.sdk.context import Context, SyncContext
    from polydomo.sdk.gather import Gather
    from polydomo.sdk.handle import Event, Handle
    from polydomo.sdk.job import Job
    from polydomo.sdk.manager import Manager, SyncManager
    from polydomo.sdk.subscription import Subscription
    from polydomo.sdk.sync import SyncClient, SyncGather, SyncHandle, SyncJob, SyncSubscription, SyncWorker
    from polydomo.sdk.worker import Worker

__all__ = [
    "BodyError",
    "Client",
    "Codec",
    "Context",
    "Event",
    "Gather",
    "Handle",
    "Job",
    "Manager",
    "Subscription",
    "SyncClient",
    "SyncContext",
    "SyncGather",
    "SyncHandle",
    "SyncJob",
    "SyncManager",
    "SyncSubscription",
    "SyncWorker",
    "Worker",
]

_MODULES = {
    "BodyError": "codecs",
    "Client": "client",
    "Codec": "codecs",
    "Context": "context",
    "Event": "handle",
    "Gather": "gather",
    "Handle": "handle",
    "Job": "job",
    "Manager": "manager",
    "Subscription": "subscription",
    "SyncClient": "sync",
    "SyncContext": "context",
    "SyncGather": "sync",
    "SyncHandle": "sync",
    "SyncJob": "sync",
    "SyncManager": "manager",
    "SyncSubscription": "sync",
    "SyncWorker": "sync",
    "Worker": "worker",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
