"""Polydomo: one service broker for Majordomo (MDP/0.2, MDP/0.1, majortomo's form) and DagBox (DCP).

    from polydomo import Client, Worker

What users import is here; it is loaded when it is first used.
"""

from typing import TYPE_CHECKING, Any

from polydomo._version import __version__

if TYPE_CHECKING:
    from polydomo.sdk import (
        BodyError,
        Client,
        Codec,
        Context,
        Event,
        Gather,
        Handle,
        Job,
        Manager,
        Subscription,
        SyncClient,
        SyncContext,
        SyncGather,
        SyncHandle,
        SyncJob,
        SyncManager,
        SyncSubscription,
        SyncWorker,
        Worker,
    )

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
