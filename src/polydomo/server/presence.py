"""Presence of a peer, probed when another peer claims its name.

An open connection proves nothing: its peer's machine may have vanished without closing it. A closed one may not have
been noticed, because nothing is read from a peer whose clients have too much unanswered. So the kernel is asked first,
then the peer, with a PING. A peer that cannot answer (ZMTP 3.0 has no PING, and a PONG that is not read proves nothing)
is left to the kernel, which is told to give up an unreachable peer soon.
"""

from __future__ import annotations

import asyncio
import select
import socket
from typing import Final, Protocol

from polydomo.wire.zmtp.connection import Connection

# The states of a peer.
HERE: Final = "here"
GONE: Final = "gone"
UNKNOWN: Final = "unknown"

# A peer that cannot answer is probed by the kernel, which needs so many times as long.
KERNEL_TIMES: Final = 2

_HANGUP: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


class ProbedPeer(Protocol):
    """Connection of a peer: `heard` is when its last bytes arrived."""

    heard: float
    connection: Connection
    transport: asyncio.Transport

    def is_read(self) -> bool:
        """Return whether the peer's bytes are read."""


class Presence:
    """Knowledge of the presence of one peer, which has so many seconds (`patience`) to answer a probe.

    The peer is an argument: two objects that refer to each other would outlive the connection.
    """

    def __init__(self) -> None:
        self._asked = float("-inf")
        self._answers = True  # the peer could have answered, and its answer would have been read

    def ask(self, peer: ProbedPeer, now: float, patience: float) -> None:
        """Probe the peer, unless it has not answered the last probe yet."""
        if peer.heard <= self._asked:
            return
        self._asked = now
        self._answers = True
        info = peer.connection.peer
        if info is not None and info.minor >= 1 and peer.connection.established:
            peer.connection.ping(0.0)
        else:
            self._answers = False
        if not self._answers or not peer.is_read():
            _hasten(peer.transport, patience)

    def state(self, peer: ProbedPeer, now: float, patience: float) -> str:
        """Return what is known about the peer. To be called several times while that is UNKNOWN."""
        if peer.transport.is_closing() or hung_up(peer.transport):
            return GONE
        if peer.heard > self._asked:
            return HERE
        self._answers = self._answers and peer.is_read()
        if now - self._asked < (patience if self._answers else KERNEL_TIMES * patience):
            return UNKNOWN
        return GONE if self._answers else HERE

    def is_alive(self, peer: ProbedPeer, now: float, patience: float) -> bool:
        """Return whether the peer is there, and probe it. It counts as alive until its answer is overdue."""
        state = self.state(peer, now, patience)
        if state == HERE:
            self.ask(peer, now, patience)
        return state != GONE


def hung_up(transport: asyncio.BaseTransport) -> bool:
    """Return whether the kernel knows that the other end of a connection was closed."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return False
    poll = select.poll()
    poll.register(sock.fileno(), _HANGUP)
    return bool(poll.poll(0))


def _hasten(transport: asyncio.BaseTransport, patience: float) -> None:
    """Let the kernel end a connection within about `patience` seconds if the other end does not acknowledge."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    seconds = max(round(patience / 2), 1)
    for name, value in (
        ("TCP_KEEPIDLE", seconds),
        ("TCP_KEEPINTVL", seconds),
        ("TCP_KEEPCNT", 1),
        ("TCP_USER_TIMEOUT", round(patience * 1000)),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
