"""A client's side of DCP v1, without a socket.

DCP §Requests & Replies: several requests MAY be outstanding, and their replies SHOULD be matched by metadata. So each
request carries one metadata part, chosen by the caller, and each reply is returned with its metadata.
"""

from polydomo.dialects.dcp.messages import ONE_BYTE, PROTOCOL, REPLY, close_metadata, read_kind
from polydomo.wire.frames import DELIMITER, Message, frame


class DcpReply:
    """A reply. `metadata` is the request's."""

    __slots__ = ("body", "metadata")

    def __init__(self, metadata: list[bytes], body: bytes) -> None:
        self.metadata = metadata
        self.body = body  # canonical (wire.frames); b"" if the reply has no data


class DcpClientProtocol:
    """One connection, with any number of outstanding requests."""

    def request(self, service: bytes, mark: bytes, body: bytes) -> bytes:
        """Return a REQUEST as wire bytes. `mark` is its metadata part, which must not be empty. The client's address is
        omitted: the broker fills it in."""
        if not mark:
            raise ValueError("a DCP metadata part may not be empty")
        head = ONE_BYTE.request_head + frame(service, True) + DELIMITER + frame(mark, True)
        return head + close_metadata(body)

    def receive(self, message: Message) -> DcpReply | None:
        """Return a reply. Any other message is dropped: None."""
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
        return None
