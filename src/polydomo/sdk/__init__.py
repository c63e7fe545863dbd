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
    "client": ["Client"],
    "codecs": ["BodyError", "Codec"],
    "context": ["Context", "SyncContext"],
    "gather": ["Gather"],
    "handle": ["Event", "Handle"],
    "job": ["Job"],
    "manager": ["Manager", "SyncManager"],
    "subscription": ["Subscription"],
    "sync": ["SyncClient", "SyncGather", "SyncHandle", "SyncJob", "SyncSubscription", "SyncWorker"],
    "worker": ["Worker"],
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
