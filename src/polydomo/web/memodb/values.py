"""Values: a CID and the bytes it stands for; what of a request or a job becomes one, and what becomes of it.

Jobs and values meet like this. A call's arguments are the frames of a job's body, each the bytes that its CID names:
the DAG-CBOR block, or a byte string as it is. Back again, a frame that is one item of deterministic CBOR is that value;
any other is a byte string. The bytes are the same either way, so nothing is lost between a client and a worker of
whatever dialect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from polydomo.web.memodb import dagcbor
from polydomo.web.memodb.cid import DAG_CBOR, IDENTITY, RAW, Cid
from polydomo.web.memodb.dagcbor import Node
from polydomo.wire.frames import split

T = TypeVar("T")

# What is larger is taken apart in a thread: it may take longer than others should wait.
LARGE: Final = 128 * 1024

# Arguments of one call: their CIDs stand in a URL. A job with more frames becomes a call with one argument, a list.
ARGUMENTS: Final = 64


class Value:
    """Immutable."""

    __slots__ = ("block", "cid")

    def __init__(self, cid: Cid, block: bytes) -> None:
        self.cid = cid
        self.block = block

    @classmethod
    def of(cls, codec: int, block: bytes) -> Value:
        """These bytes, which are known to be of the codec."""
        return cls(Cid.of(codec, block), block)

    @classmethod
    def of_node(cls, node: Node) -> Value:
        """A byte string is kept as it is, everything else as CBOR."""
        if isinstance(node, bytes):
            return cls.of(RAW, node)
        codec, block = dagcbor.encode(node)
        return cls.of(codec, block)

    @classmethod
    def of_frame(cls, frame: bytes) -> Value:
        """What a frame of a job's body is."""
        return cls.of(dagcbor.codec_of(frame) or RAW, frame)

    @classmethod
    def inside(cls, cid: Cid) -> Value | None:
        """What a CID says by itself; None: its content is elsewhere."""
        return cls(cid, cid.digest) if cid.hash == IDENTITY else None

    def node(self) -> Node:
        """Taken apart. BadCbor: the CID was made by somebody who did not look at its content."""
        if self.cid.codec == RAW:
            return self.block
        return dagcbor.decode(self.block, strict=False)

    def cbor(self) -> bytes:
        """As CBOR."""
        if self.cid.codec == RAW:
            return dagcbor.encode(self.block)[1]
        if self.cid.hash == IDENTITY:
            return dagcbor.encode(self.node())[1]
        return self.block


def answer(body: bytes) -> Value:
    """What a job's answer is: one frame is a value, several are a list of byte strings."""
    frames = split(body)
    if len(frames) == 1:
        return Value.of_frame(frames[0])
    if not frames:
        return Value.of(RAW, b"")
    return Value.of(DAG_CBOR, dagcbor.encode(frames)[1])


def arguments(body: bytes) -> list[Value]:
    """What a job's body is to a function: each frame an argument. At least one, and no more than fit into a URL."""
    frames = split(body)
    if len(frames) > ARGUMENTS:
        return [answer(body)]
    return [Value.of_frame(frame) for frame in frames or [b""]]


async def aside(size: int, work: Callable[..., T], *args: Any) -> T:
    """Do it here, or where it does not keep others waiting."""
    if size <= LARGE:
        return work(*args)
    return await asyncio.to_thread(work, *args)
