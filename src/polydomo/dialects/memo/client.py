"""Client side of memo01, without a socket.

A JOB is a request, its RESULT the reply; NNG's request IDs match them, so one connection carries any number at once. A
broker that cannot serve a JOB sends nothing: the caller repeats it after a while, under the same ID, by which a broker
that still has the job recognises the repeat.
"""

from __future__ import annotations

from polydomo.dialects.memo import messages
from polydomo.dialects.memo.messages import CLIENT_RESULT, RESULT, TIMEOUT_MAX
from polydomo.errors import ProtocolError
from polydomo.wire.sp import requests


class MemoClientProtocol:
    """All requests of one client, on any connection. `first`, a random number, is where its request IDs begin: two
    clients of one device, or a client and its restarted successor, must not share IDs."""

    def __init__(self, first: int) -> None:
        self._number = first

    def next_id(self) -> bytes:
        """Return a new request ID."""
        self._number += 1
        return requests.request_id(self._number)

    def request(self, id: bytes, service: bytes, limit: float | None, body: bytes, ipc: bool) -> bytes:
        """Encode a JOB. `limit` is the worker's timeout in seconds; None: the longest possible."""
        timeout = TIMEOUT_MAX if limit is None else min(max(round(limit * 1000), 1), TIMEOUT_MAX)
        return requests.encode(id, messages.job(b"", service, timeout) + messages.payload_of(body), ipc)

    def receive(self, data: bytes, start: int, end: int) -> bytes | None:
        """Return the canonical body of a RESULT. Anything else is dropped: None."""
        if data.startswith(CLIENT_RESULT, start):
            return messages.body_of(data[start + len(CLIENT_RESULT) : end])
        try:
            header = messages.read(data, start, end)  # a RESULT in another encoding
        except ProtocolError:
            return None
        return messages.body_of(data[header.end : end]) if header.kind == RESULT else None
