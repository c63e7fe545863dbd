"""Messages of REQ and REP, as bytes to send.

A message is its size as 64 bits, then that many bytes; over IPC a byte 01 stands before the size. Those bytes begin
with the stack of request IDs: 32-bit words up to and including the first with its high bit set, which is the
requester's own. Devices on the way put a word of theirs before it, and take it off the reply, which carries the same
stack back.
"""

from typing import Final

from polydomo.errors import ProtocolError

# NNG lets a request pass so many devices; longer stacks come from loops.
STACK_MAX: Final = 8

IPC_MARK: Final = b"\x01"

# The bit that ends a stack.
LAST: Final = 0x8000_0000


def head(stack: bytes, size: int, ipc: bool) -> bytes:
    """What goes before `size` bytes of content, the stack included."""
    length = (len(stack) + size).to_bytes(8, "big")
    return IPC_MARK + length + stack if ipc else length + stack


def encode(stack: bytes, content: bytes, ipc: bool = False) -> bytes:
    """A whole message."""
    return head(stack, len(content), ipc) + content


def request_id(number: int) -> bytes:
    """A stack of one word, as a requester begins it: 31 bits of `number` and the bit that ends it."""
    return ((number & 0x7FFF_FFFF) | LAST).to_bytes(4, "big")


def stack_end(data: bytes, start: int, end: int) -> int:
    """Where the stack of a message that lies from `start` to `end` is over; -1: it is longer than STACK_MAX words.
    ProtocolError: the message is over before its stack is."""
    pos = start
    for _ in range(STACK_MAX):
        if pos + 4 > end:
            raise ProtocolError("a message without a request ID", hint="REQ sockets never send one")
        pos += 4
        if data[pos - 4] & 0x80:
            return pos
    return -1
