"""One NNG connection of MemoDB peers: its output, its open requests, and the requests it has answered.

A request is identified by its connection and its stack of IDs. NNG sends it again, with the same stack, when no reply
has come for a while. Such a repeat is ignored while the request is open, and for some time after its reply, which is
already on its way over the same stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

from polydomo.core.model import Job
from polydomo.core.principals import ANONYMOUS
from polydomo.dialects.session import LARGE_WRITE, Flushable, Outbox, TransportBase
from polydomo.wire.sp.requests import head

# A connection remembers the last requests it answered in two generations, each of so many requests and of so many bytes
# of replies.
ANSWERED: Final = 4096
ANSWERED_BYTES: Final = 65536

# A reply is kept, to be sent again if its connection breaks, if neither it nor its request is larger.
REPLY_MAX: Final = 32768


@mypyc_attr(allow_interpreted_subclasses=True)
class SpTransport(TransportBase):
    """The socket of an NNG peer. It does not pause while workers use the connection."""

    def ready(self) -> None:
        """Admit the peer after the handshake; raise ProtocolError to refuse it."""


# The transport of a lost connection, which may outlive its socket.
CLOSED_TRANSPORT: Final = SpTransport()


class SentReply:
    """A reply to a client, and what identifies its request."""

    __slots__ = ("content", "digest", "limit", "service")

    def __init__(self, service: bytes, limit: float, digest: int, content: bytes) -> None:
        self.service = service
        self.limit = limit
        self.digest = digest  # of the request's body
        self.content = content


class MemoPeerConnection(Flushable):
    """State of one connection. `lost` after its end."""

    def __init__(
        self,
        name: bytes,
        transport: SpTransport,
        outbox: Outbox,
        write: Callable[[bytes], object],
        host: str,
        ipc: bool,
    ) -> None:
        self.name = name
        self.principal = ANONYMOUS  # on whose behalf the peer acts
        self.transport = transport
        self.lost = False
        self.outbox = outbox
        self.write = write
        self.write_large = write  # for more than LARGE_WRITE bytes
        self.host = host  # the peer's address without the port
        self.ipc = ipc
        self.invalid = 0
        self.jobs: dict[bytes, Job | None] = {}  # open requests of clients, by stack
        self.waiting: set[bytes] = set()  # open requests of workers
        self.workers: dict[bytes, None] = {}  # IDs of the workers whose last request came from here
        self._recent: dict[bytes, SentReply | None] = {}  # answered requests
        self._older: dict[bytes, SentReply | None] = {}
        self._recent_bytes = 0  # of replies
        self._older_bytes = 0
        self._out: list[bytes] = []
        self._deferrable = False  # _out may be held back for a few turns

    def is_repeat(self, stack: bytes) -> bool:
        """Return whether a request with this ID is open or was answered a short time ago."""
        return stack in self.jobs or stack in self._recent or stack in self._older or stack in self.waiting

    def same_peer(self, other: MemoPeerConnection) -> bool:
        """Return whether `other` may be the connection with which this one's peer came back."""
        return self.principal == other.principal and self.host == other.host

    def send(self, stack: bytes, content: bytes) -> None:
        """Reply to a worker's request at the end of this turn, and remember the request."""
        self.remember(stack, None)
        out = self._out
        if not out or self._deferrable:
            self._deferrable = False
            self.outbox.add(self)
        out.append(head(stack, len(content), self.ipc))
        out.append(content)

    def reply(self, stack: bytes, content: bytes, reply: SentReply | None) -> None:
        """Reply to a client's request and remember it. In busy turns the write may be deferred.

        `reply` is kept as well, unless it is None or too large.
        """
        self.jobs.pop(stack, None)
        self.remember(stack, reply if len(content) <= REPLY_MAX else None)
        out = self._out
        if not out:
            self._deferrable = True
            self.outbox.add_deferrable(self)
        out.append(head(stack, len(content), self.ipc))
        out.append(content)

    def remember(self, stack: bytes, reply: SentReply | None) -> None:
        """Ignore repeats of this request from now on; `reply` is sent again if one comes over another connection."""
        size = 0 if reply is None else len(reply.content)
        if len(self._recent) >= ANSWERED or self._recent_bytes + size > ANSWERED_BYTES:
            self.forget_older()
        self._recent_bytes += size
        self._recent[stack] = reply

    def forget_older(self) -> None:
        """Forget the older generation of answered requests. The server calls this every few seconds."""
        self._older = self._recent
        self._older_bytes = self._recent_bytes
        self._recent = {}
        self._recent_bytes = 0

    def replies(self) -> list[tuple[bytes, SentReply]]:
        """Return the replies that are kept, oldest first, with the IDs of their requests."""
        kept = [*self._older.items(), *self._recent.items()]
        return [(stack, reply) for stack, reply in kept if reply is not None]

    def reply_bytes(self) -> int:
        """Return the size of the replies that are kept."""
        return self._recent_bytes + self._older_bytes

    def flush(self) -> None:
        out = self._out
        if out:
            self._out = []
            data = b"".join(out)
            if len(data) > LARGE_WRITE:
                self.write_large(data)
            else:
                self.write(data)

    def pause(self) -> None:
        self.transport.pause()

    def resume(self) -> None:
        self.transport.resume()

    def report_violation(self, reason: str) -> None:
        """Count and log a message that memo01 does not allow; it is not answered."""
        self.invalid += 1
        self.transport.report_violation(reason)

    def close(self) -> None:
        """Drop everything but the workers. The socket is released: this object may outlive it."""
        self.lost = True
        self.transport = CLOSED_TRANSPORT
        self.write = self.write_large = _discard
        self.jobs = {}
        self._recent = {}
        self._older = {}
        self._out = []


def _discard(data: bytes) -> None:
    """Replace the write of a lost connection."""
