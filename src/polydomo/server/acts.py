"""The core's log of acts, on a recorder that answers when the record is on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from polydomo.core.ports import ActLog
from polydomo.deferred import Deferred


class ActRecorder(Protocol):
    """Audit log."""

    def record(
        self, principal: str, verb: str, action: str, target: str = "", address: str = ""
    ) -> Deferred[None]:
        """Record an act. Fails if the record is not on disk."""


class RecordedActs(ActLog):
    """Log of acts. `advance` sets the core's time, and is called before the core hears that an act is recorded."""

    def __init__(self, recorder: ActRecorder, advance: Callable[[], None]) -> None:
        self._recorder = recorder
        self._advance = advance

    def record(
        self, principal: str, verb: str, action: str, target: str, address: str, then: Callable[[str], None]
    ) -> None:
        def done(reason: str) -> None:
            self._advance()
            then(reason)

        self._recorder.record(principal, verb, action, target, address).then(
            lambda _: done(""), lambda error: done(str(error) or type(error).__name__)
        )
