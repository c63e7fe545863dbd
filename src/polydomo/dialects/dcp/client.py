"""A client's side of DCP v1, without a socket.

DCP §Requests & Replies: several requests MAY be outstanding, and their replies SHOULD be told apart by metadata.
So each request carries one metadata part, chosen by the owner, and each reply is handed back with the metadata it
came with.
"""

from polydomo.dialects.dcp.messages import ONE_BYTE, PROTOCOL, REPLY, Width, read_kind
from polydomo.wire.frames import DELIMITER, EMPTY_BODY, Message, frame


class DcpReply:
    """An answer. `metadata` is what the request carried."""

    __slots__ = ("body", "metadata")

    def __init__(self, metadata: list[bytes], body: bytes) -> None:
        self.metadata = metadata
        self.body = body  # canonical (wire.frames); b"" if the reply has no data at all


class DcpClientProtocol:
    """One connection, any number of requests outstanding."""

    def __init__(self, width: Width = ONE_BYTE) -> None:
        self.width = width
        self.invalid = 0  # messages that are no replies

    def request(self, service: bytes, mark: bytes, body: bytes) -> bytes:
        """A REQUEST as wire bytes. `mark` is its metadata part, which may not be empty. The client's address
        is left out: the broker fills it in."""
        if not mark:
            raise ValueError("a DCP metadata part may not be empty")
        # The delimiter behind the metadata is the last frame if there is no data at all.
        tail = DELIMITER + body if body else EMPTY_BODY
        return self.width.request_head + frame(service, True) + DELIMITER + frame(mark, True) + tail

    def receive(self, message: Message) -> DcpReply | None:
        """A reply, or None for anything else: it is counted and dropped."""
        if message.take() == b"" and message.take() == PROTOCOL:
            known = read_kind(message.take())
            address = message.take()
            if known is not None and known[0] == REPLY and (not address or message.take() == b""):
                metadata: list[bytes] = []
                part = message.take()
                while part:
                    metadata.append(part)
                    part = message.take()
                if part is not None:
                    return DcpReply(metadata, message.rest())
        self.invalid += 1
        return None
