"""The part that the broker's workers of all ZeroMQ dialects share: leaving, dismissal, protocol violations."""

from __future__ import annotations

from abc import abstractmethod

from polydomo.core.model import Worker, WorkerPort
from polydomo.core.policy import Heartbeat
from polydomo.dialects.session import Session


class WorkerBase(WorkerPort):
    """A worker on a connection: unregistered (`core` is None) until it registers, and again when it has left."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.broker = session.broker
        self.link = session.link
        self.core: Worker | None = None

    def make_core(self, name: bytes, dialect: str, anonymous: bool, beat: Heartbeat) -> Worker:
        """Return the core's worker for this peer, not registered yet. `anonymous`: the name is made up."""
        core = self.broker.make_worker(name, dialect, self, beat, self.link.principal)
        core.anonymous = anonymous
        core.instance = self.link.peer_id()
        return core

    def is_alive(self) -> bool:
        return self.link.transport.is_alive()

    def leave(self, reason: str) -> None:
        """Remove the worker from the broker; its jobs go to other workers, and nothing more is sent to it."""
        core = self.core
        self.reset()
        if core is not None:
            self.broker.leave(core, reason)

    def dismiss(self, reason: str) -> None:
        """Tell the worker that the broker has removed it. Nothing follows a DISCONNECT."""
        self.reset()
        self.disconnect(reason)

    def reject_unexpected(self, reason: str) -> None:
        """Answer a valid but unexpected command with DISCONNECT and nothing after it (RFC 18 and NFP, both in §Opening
        and Closing a Connection)."""
        self.link.report_violation(reason)
        self.leave(reason)
        self.disconnect(reason)

    def reject_invalid(self, reason: str) -> None:
        """Drop an invalid message and treat its sender as invalid (the same sections). A registered worker is told, so
        that it can start again."""
        self.link.report_violation(reason)
        if self.core is not None:
            self.leave(reason)
            self.disconnect(reason)

    @abstractmethod
    def reset(self) -> None:
        """Return to the unregistered state."""

    def disconnect(self, reason: str) -> None:
        """Send the dialect's DISCONNECT, if it has one."""
