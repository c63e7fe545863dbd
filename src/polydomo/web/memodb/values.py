"""Values: CIDs with their contents, and the mapping between values and the frames of jobs.

A call's arguments are the frames of a job's body, each the bytes that its CID names: the DAG-CBOR block, or a raw byte
string. In the other direction, a frame that is one item of deterministic CBOR is that value; any other frame is a byte
string. The bytes are the same either way, so nothing is lost between clients and workers of different dialects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from polydomo.web.memodb import dagcbor
from polydomo.web.memodb.cid import DAG_CBOR, IDENTITY, RAW, Cid
from polydomo.web.memodb.dagcbor import Node
from polydomo.wire.frames import split

T = TypeVar("T")

# Larger values are converted in a thread, so that other requests do not wait.
LARGE: Final = 128 * 1024

# Limit of arguments: their CIDs are in a URL. A job with more frames becomes a call with one argument, a list.
ARGUMENTS_MAX: Final = 64


class Value(NamedTuple):
    """A CID and its content."""

    cid: Cid
    block: bytes

    @classmethod
    def of(cls, codec: int, block: bytes) -> Value:
        """Return the value of bytes that are valid in the codec."""
        return cls(Cid.of(codec, block), block)

    @classmethod
    def of_node(cls, node: Node) -> Value:
        """Encode a node: a byte string is RAW, everything else CBOR."""
        if isinstance(node, bytes):
            return cls.of(RAW, node)
        codec, block = dagcbor.encode(node)
        return cls.of(codec, block)

    @classmethod
    def of_frame(cls, frame: bytes) -> Value:
        """Return the value of a frame."""
        return cls.of(dagcbor.codec_of(frame) or RAW, frame)

    @classmethod
    def inside(cls, cid: Cid) -> Value | None:
        """Return the value that a CID contains; None if its content is in the store."""
        return cls(cid, cid.digest) if cid.hash == IDENTITY else None

    def node(self) -> Node:
        """Decode the value; raise BadCbor if the content of a foreign CID is invalid."""
        if self.cid.codec == RAW:
            return self.block
        return dagcbor.decode(self.block)

    def cbor(self) -> bytes:
        """Return the value as CBOR."""
        if self.cid.codec == RAW:
            return dagcbor.encode(self.block)[1]
        if self.cid.hash == IDENTITY:
            return dagcbor.encode(self.node())[1]
        return self.block


def result_value(body: bytes) -> Value:
    """Return the value of a job's result: that of one frame, or a list of byte strings for several."""
    frames = split(body)
    if len(frames) == 1:
        return Value.of_frame(frames[0])
    if not frames:
        return Value.of(RAW, b"")
    return Value.of(DAG_CBOR, dagcbor.encode(frames)[1])


def argument_values(body: bytes) -> list[Value]:
    """Return the arguments that a job's body means: one per frame, at least one, at most ARGUMENTS_MAX."""
    frames = split(body)
    if len(frames) > ARGUMENTS_MAX:
        return [result_value(body)]
    return [Value.of_frame(frame) for frame in frames or [b""]]


async def run_aside(size: int, work: Callable[..., T], *args: Any) -> T:
    """Run `work` here, or in a thread if `size` is large."""
    if size <= LARGE:
        return work(*args)
    return await asyncio.to_thread(work, *args)
