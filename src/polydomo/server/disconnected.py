"""Clients that dropped off, within their grace time: their sessions, and what was answered meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from polydomo.core.names import printable
from polydomo.dialects.session import CLOSED_TRANSPORT, PeerConnection, Session, Transport
from polydomo.server.log import Log
from polydomo.server.memory_budget import MemoryBudget

log = Log()


class Disconnected(Transport):
    """Wire of one such client, in the place of its connection. `limit` is the bytes of answers that may wait for it,
    `forgotten` is called with its identity when nothing waits any more."""

    def __init__(
        self,
        link: PeerConnection,
        sessions: list[Session],
        budget: MemoryBudget,
        limit: int,
        forgotten: Callable[[bytes], None],
    ) -> None:
        self.link = link
        self.sessions = sessions
        self._budget = budget
        self._limit = limit
        self._forgotten = forgotten
        self._answers: list[bytes] = []
        self._size = 0
        link.replace_transport(self, self._keep)

    def hand_over(self, link: PeerConnection) -> None:
        """Continue on the client's new connection: send everything it missed, also what was not flushed yet."""
        missed = [*self._answers, *self.link.out]
        self.link.out = []
        self.forget()
        for session in self.sessions:
            link.adopt(session)
        for data in missed:
            link.send(data)

    def forget(self) -> None:
        """Wait for the client no longer."""
        self._forgotten(self.link.identity)
        self._budget.release(self)
        self._answers.clear()
        self.link.replace_transport(CLOSED_TRANSPORT, discard)

    def cut(self, reason: str) -> None:
        """Give the client up."""
        log.warning(
            "answers for a disconnected client dropped", client=printable(self.link.identity), reason=reason
        )
        self.forget()
        for session in self.sessions:
            session.abandon()

    def _keep(self, data: bytes) -> None:
        """Keep an answer, as the socket would. A client with more than a present one may leave unread is given up."""
        self._answers.append(data)
        self._size += len(data)
        if self._size > self._limit:
            self.cut(f"more than {self._limit} bytes wait for it")
        else:
            self._budget.hold(self, self._size)


def discard(data: bytes) -> None:
    """Drop what is written to a socket that is gone."""
