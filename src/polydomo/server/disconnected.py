"""Disconnected clients within their grace period: their sessions and the answers that they missed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from polydomo.core.names import printable
from polydomo.dialects.session import CLOSED_TRANSPORT, PeerConnection, Session, Transport
from polydomo.server.log import Log
from polydomo.server.memory_budget import MemoryBudget

log = Log()


class Owned(Protocol):
    """Connection, or what is kept of one. `site` is the group of addresses that its peer has."""

    key: bytes
    site: str

    @property
    def principal(self) -> str: ...


class Disconnected(Transport):
    """Transport of one disconnected client, in place of its connection.

    `limit` is the number of bytes of answers that are kept. `forgotten` is called with the client's identity when it
    has returned or was given up.
    """

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
        self.key = b""  # the client's public key
        self.site = ""  # where the client was
        self._budget = budget
        self._limit = limit
        self._forgotten = forgotten
        self._answers: list[bytes] = []
        self._size = 0
        link.replace_transport(self, self._keep)

    @property
    def principal(self) -> str:
        """The client's principal."""
        return self.link.principal

    def may_continue(self, peer: Owned, instance: bytes) -> bool:
        """Return whether a connection with the same identity is the client's.

        It must have the same key. Without keys it must have the same principal and come from the same site, which is
        all that is known of foreign clients. `instance`: of a named peer of our own SDK.
        """
        return (
            same_owner(self, peer)
            and self.link.instance == instance
            and (self.key != b"" or self.site == peer.site)
        )

    def hand_over(self, link: PeerConnection) -> None:
        """Continue on the client's new connection: send all answers that it missed, also unflushed ones."""
        missed = [*self._answers, *self.link.out]
        self.link.out = []
        self.forget()
        for session in self.sessions:
            link.adopt(session)
        for data in missed:
            link.send(data)

    def forget(self) -> None:
        """Discard the kept answers and stop waiting for the client."""
        self._forgotten(self.link.identity)
        self._budget.release(self)
        self._answers.clear()
        self.link.replace_transport(CLOSED_TRANSPORT, discard)

    def cut(self, reason: str) -> None:
        """Give up the client and its sessions."""
        log.warning(
            "answers for a disconnected client dropped", client=printable(self.link.identity), reason=reason
        )
        self.forget()
        for session in self.sessions:
            session.abandon()

    def _keep(self, data: bytes) -> None:
        """Keep an answer; give up a client with more bytes than a connected one may leave unread."""
        self._answers.append(data)
        self._size += len(data)
        if self._size > self._limit:
            self.cut(f"more than {self._limit} bytes of answers")
        else:
            self._budget.hold(self, self._size)


def same_owner(one: Owned, other: Owned) -> bool:
    """Return whether two connections with one identity have the same key; without keys, the same principal."""
    return one.key == other.key if one.key or other.key else one.principal == other.principal


def discard(data: bytes) -> None:
    """Drop data for a closed socket."""
