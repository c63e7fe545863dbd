"""Encoding of REQ and REP messages.

A message is its size as 64 bits, then that many bytes; over IPC a byte 01 precedes the size. The content begins with
the stack of request IDs: 32-bit words up to and including the first with its high bit set, which is the requester's
own. A device prepends a word and removes it from the reply, which carries the same stack.
"""

from typing import Final

from polydomo.errors import ProtocolError

# NNG's limit on devices between two peers; a longer stack comes from a loop.
STACK_MAX: Final = 8

IPC_MARK: Final = b"\x01"

# The bit that ends a stack.
LAST: Final = 0x8000_0000


def head(stack: bytes, size: int, ipc: bool) -> bytes:
    """Encode what precedes `size` bytes of content: the message's length and the stack."""
    length = (len(stack) + size).to_bytes(8, "big")
    return IPC_MARK + length + stack if ipc else length + stack


def encode(stack: bytes, content: bytes, ipc: bool = False) -> bytes:
    """Encode a complete message."""
    return head(stack, len(content), ipc) + content


def request_id(number: int) -> bytes:
    """Return a requester's stack of one word: 31 bits of `number` and the end bit."""
    return ((number & 0x7FFF_FFFF) | LAST).to_bytes(4, "big")


def stack_end(data: bytes, start: int, end: int) -> int:
    """Return where the stack of the message in `data[start:end]` ends; -1 if it has more than STACK_MAX words.

    Raise ProtocolError if the message ends before its stack does.
    """
    pos = start
    for _ in range(STACK_MAX):
        if pos + 4 > end:
            raise ProtocolError("a message without a request ID", hint="REQ sockets never send one")
        pos += 4
        if data[pos - 4] & 0x80:
            return pos
    return -1
