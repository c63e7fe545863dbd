"""Short name of the test kit `polydomo.sdk.testing`."""

from polydomo.sdk.testing import LocalBroker, SyncLocalBroker

__all__ = ["LocalBroker", "SyncLocalBroker"]
