"""Polydomo: a service broker for MDP, DCP, NFP, WMP and MemoDB, with a client and worker SDK.

    from polydomo import Client, Worker

The public names are here; the SDK is imported on first use.
"""

from typing import TYPE_CHECKING, Any

from polydomo._version import __version__

if TYPE_CHECKING:
    from polydomo.sdk import *

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
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from polydomo import sdk

    return getattr(sdk, name)
