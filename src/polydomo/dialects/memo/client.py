"""A client's side of memo01, without a socket.

A JOB is a request, its RESULT the reply; NNG's request IDs say which belongs to which, so one connection carries any
number at once. A broker that cannot serve a JOB says nothing: whoever waits sends it again after a while, under the
same ID, by which a broker that still has it knows the repeat.
"""

from __future__ import annotations

from polydomo.dialects.memo import messages
from polydomo.dialects.memo.messages import CLIENT_RESULT, RESULT, TIMEOUT_MAX
from polydomo.errors import ProtocolError
from polydomo.wire.sp import requests


class MemoClientProtocol:
    """All requests of one client, whatever connections they go over. `first` is where its IDs begin: anywhere, so that
    two clients behind one device, or one that was started again, have different ones."""

    def __init__(self, first: int) -> None:
        self.invalid = 0  # messages that no broker should have sent
        self._number = first

    def next_id(self) -> bytes:
        """A request's ID, for as long as it is wanted."""
        self._number += 1
        return requests.request_id(self._number)

    def request(self, id: bytes, service: bytes, limit: float | None, body: bytes, ipc: bool) -> bytes:
        """A JOB as wire bytes. `limit`: seconds that a worker may take; None: the longest there is."""
        timeout = TIMEOUT_MAX if limit is None else min(max(round(limit * 1000), 1), TIMEOUT_MAX)
        return requests.encode(id, messages.job(b"", service, timeout) + messages.payload_of(body), ipc)

    def receive(self, data: bytes, start: int, end: int) -> bytes | None:
        """The canonical body of a RESULT; None for anything else: it is counted and dropped."""
        if data.startswith(CLIENT_RESULT, start):
            return messages.body_of(data[start + len(CLIENT_RESULT) : end])
        try:
            header = messages.read(data, start, end)  # the same may be encoded in another way
        except ProtocolError:
            self.invalid += 1
            return None
        if header.kind != RESULT:
            self.invalid += 1
            return None
        return messages.body_of(data[header.end : end])
