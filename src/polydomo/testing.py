"""The test kit under a shorter name: see `polydomo.sdk.testing`."""

from polydomo.sdk.testing import LocalBroker, SyncLocalBroker

__all__ = ["LocalBroker", "SyncLocalBroker"]
