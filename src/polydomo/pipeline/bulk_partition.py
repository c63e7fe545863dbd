"""One partition of a bulk call: Arrow batches in, the same rows with their results out, in order.

The connection runs on an event loop in its own thread, so it proceeds while Spark hands over rows or takes results.
Rows are sent as long as the window has room, across batches; results are returned piece by piece as pieces complete.
Only a few pieces are held at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import msgspec
import pyarrow as pa

from polydomo.errors import Refused
from polydomo.pipeline.bulk_carrier import (
    DONE,
    NOT_SENT,
    REFUSED,
    Carrier,
    End,
    Errand,
)
from polydomo.pipeline.bulk_client import ClientCarrier
from polydomo.pipeline.bulk_nfp import NfpCarrier
from polydomo.sdk.background_loop import shared_loop
from polydomo.sdk.client import Client
from polydomo.sdk.options import prepare
from polydomo.sdk.transport import ConnectionLost
from polydomo.sdk.url import parse
from polydomo.wire.frames import frame, split

# Rows that are sent in the order of their ids and returned together: the default size of Spark's batches; fewer if the
# rows or their results are large.
PIECE: Final = 10_000
PIECE_BYTES: Final = 16 * 1024 * 1024

# Maximum number of pieces in flight: one that fills the window, one that waits, and slow ones before them.
PIECES: Final = 4

# Ended rows are queried in groups, small enough that the broker still has all of them in memory.
TRACED: Final = 200

# Columns that the plan adds for this module: the request, and the key of the row.
BODY: Final = "__polydomo_body"
KEY: Final = "__polydomo_key"

# An MDP connection carries one call at a time; this limits the number of connections.
MDP_CONNECTIONS: Final = 64

# Retry without limit: the row's timeout and `patience` end the attempts.
ALWAYS: Final = 1_000_000

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class Order:
    """Options of a bulk call, pickled to the executors."""

    url: str
    service: str
    run: str
    durable: bool
    window: int
    timeout: float | None
    patience: float
    frames: bool  # a result is a list of frames, not one value
    prefix: str = ""  # of the added columns
    deadline: float | None = None  # seconds after which the broker gives up a job

    def partition(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process one partition; passed to `mapInArrow`."""
        yield from Partition(self, *_task()).run(batches)


class RowSlice:
    """Rows that are returned together."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.ids: list[str] = []
        self.ends: list[End | None] = [None] * batch.num_rows
        self.left = batch.num_rows
        self.done: Future[None] = Future()

    def ended(self, place: int, end: End) -> None:
        """Record the outcome of one row. Called on the loop."""
        self.ends[place] = end
        self.left -= 1
        if not self.left:
            self.done.set_result(None)


class Partition:
    """One task's partition of the rows."""

    def __init__(self, order: Order, number: int, attempt: int) -> None:
        self.order = order
        self.name = f"{order.run}.{number}.{attempt}"
        self._carrier: Carrier | None = None
        self._ended_ids: list[str] = []  # not traced yet
        self._records: dict[str, list[Any]] = {}
        self._tracing: set[asyncio.Task[None]] = set()
        self._size = 0.0  # estimated bytes of a row with its result

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send all rows and yield them with their results."""
        loop = shared_loop()
        under_way: deque[RowSlice] = deque()
        try:
            for batch in batches:
                start = 0
                while start < batch.num_rows:
                    piece = RowSlice(batch.slice(start, self._rows(batch)))
                    start += piece.batch.num_rows
                    under_way.append(piece)
                    loop.run(self._feed(piece))
                    while under_way and (under_way[0].done.done() or len(under_way) > PIECES):
                        yield self._finish(under_way.popleft())
            while under_way:
                yield self._finish(under_way.popleft())
        finally:
            if self._carrier is not None:
                loop.run(self._carrier.close())

    def _rows(self, batch: pa.RecordBatch) -> int:
        """Return the number of rows of the next piece."""
        size = max(self._size, batch.nbytes / batch.num_rows)
        return max(1, min(PIECE, int(PIECE_BYTES / max(size, 1.0))))

    async def _feed(self, piece: RowSlice) -> None:
        """Send all rows of a piece; return when the last one is sent."""
        carrier = self._carrier
        if carrier is None:
            carrier = self._carrier = self._made()
        await carrier.ready()
        bodies = piece.batch.column(BODY).to_pylist()
        keys = piece.batch.column(KEY).to_pylist()
        salt = blake2b(f"{self.order.run}\0{self.order.service}\0".encode(), digest_size=16)
        for body, key in zip(bodies, keys, strict=True):
            hashed = salt.copy()
            hashed.update((body or b"") if key is None else key)
            piece.ids.append(hashed.hexdigest())
        for place in self._places(piece):
            sent = frame(bodies[place] or b"")
            if self.order.deadline is not None:
                try:
                    sent = prepare("nfp", {"deadline": self.order.deadline}, sent).body
                except ValueError as error:
                    piece.ended(place, End(REFUSED, NOT_SENT, str(error)))
                    continue
            await carrier.send((piece, place), piece.ids[place], sent)

    def _places(self, piece: RowSlice) -> Iterable[int]:
        """Return the order in which the rows are sent. Sorted ids are adjacent in the index of the broker's store, so
        that it writes fewer pages: about a tenth less work, in three noisy rounds."""
        places = range(len(piece.ids))
        return sorted(places, key=piece.ids.__getitem__) if self.order.durable else places

    def _made(self) -> Carrier:
        order = self.order
        url = parse(order.url)
        errand = Errand(url, order.service, self.name, order.timeout, order.patience, order.window)
        if order.durable:
            return NfpCarrier(errand, self._ended)
        client = Client(
            order.url,
            retries=ALWAYS,
            connections=min(order.window, MDP_CONNECTIONS),
            window=order.window,
            connect_timeout=order.patience,
        )
        return ClientCarrier(errand, self._ended, client)

    def _finish(self, piece: RowSlice) -> pa.RecordBatch:
        piece.done.result()
        shared_loop().run(self._trace_rest(piece))
        found = with_ends(piece, self._records, self.order)
        for uid in piece.ids:
            self._records.pop(uid, None)
        self._size = (self._size + found.nbytes / found.num_rows) / 2
        return found

    def _ended(self, row: tuple[RowSlice, int], end: End) -> None:
        piece, place = row
        if self.order.durable and end.sent is not None:
            self._ended_ids.append(piece.ids[place])
            if len(self._ended_ids) >= TRACED:
                self._trace()
        piece.ended(place, end)

    def _trace(self) -> None:
        """Query jobs while the broker has them in memory."""
        ids, self._ended_ids = self._ended_ids, []
        task = asyncio.get_running_loop().create_task(self._ask(ids))
        self._tracing.add(task)
        task.add_done_callback(self._tracing.discard)

    async def _ask(self, ids: list[str]) -> None:
        """Fetch attempts and times of these jobs from the broker. Rows without a record keep null."""
        assert isinstance(self._carrier, NfpCarrier)
        try:
            said = await self._carrier.ask_catalogue("trace_jobs", client=self.name, ids=ids)
        except (ConnectionLost, Refused):
            return
        for row in msgspec.json.decode(said):
            self._records[row[0]] = row

    async def _trace_rest(self, piece: RowSlice) -> None:
        if self._tracing:
            await asyncio.wait(self._tracing)
        pairs = zip(piece.ids, piece.ends, strict=True)
        missing = [uid for uid, end in pairs if end is not None and end.sent and uid not in self._records]
        if missing and self.order.durable:
            gone = set(missing)
            self._ended_ids = [uid for uid in self._ended_ids if uid not in gone]
            await self._ask(list(gone))


def with_ends(piece: RowSlice, records: dict[str, list[Any]], order: Order) -> pa.RecordBatch:
    """Return the original rows, without the added request columns, and the outcome of each."""
    batch = piece.batch
    kept = [place for place, name in enumerate(batch.schema.names) if name not in (BODY, KEY)]
    arrays = [batch.column(place) for place in kept]
    fields = [batch.schema.field(place) for place in kept]
    results: list[Any] = []
    attempts: list[int | None] = []
    sent: list[int | None] = []
    ended: list[int | None] = []
    ends: list[End] = [end for end in piece.ends if end is not None]
    for uid, end in zip(piece.ids, ends, strict=True):
        record = records.get(uid)
        if record is not None and end.sent is not None:
            attempts.append(record[1])
            sent.append(record[2])
            ended.append(record[3] or _micros(end.ended))
        else:
            attempts.append(None)
            sent.append(_micros(end.sent))
            ended.append(_micros(end.ended))
        if end.body is None or end.outcome != DONE:
            results.append(None)
        else:
            found = split(end.body)
            results.append(found if order.frames else found[0] if len(found) == 1 else b"".join(found))
    columns: list[tuple[str, list[Any], pa.DataType]] = [
        ("result", results, pa.list_(pa.binary()) if order.frames else pa.binary()),
        ("outcome", [end.outcome for end in ends], pa.string()),
        ("error", [end.error for end in ends], pa.string()),
        ("message", [end.message for end in ends], pa.string()),
        ("attempts", attempts, pa.int32()),
        ("submitted", sent, _TIMESTAMP),
        ("finished", ended, _TIMESTAMP),
    ]
    for name, values, kind in columns:
        arrays.append(pa.array(values, kind))
        fields.append(pa.field(f"{order.prefix}{name}", kind))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _micros(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1_000_000)


def _task() -> tuple[int, int]:
    """Return the partition's number and the attempt's."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return (0, 0) if context is None else (context.partitionId(), context.attemptNumber())
