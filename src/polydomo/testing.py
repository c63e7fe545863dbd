"""The test kit (`polydomo.sdk.testing`) under a shorter name."""

from polydomo.sdk.testing import LocalBroker, SyncLocalBroker

__all__ = ["LocalBroker", "SyncLocalBroker"]
