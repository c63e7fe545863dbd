"""What NFP's peers keep on their own disk (NFP §Job Persistence): a client its jobs, a worker its requests and results.

Both are one SQLite file in write-ahead-log mode. Statements run in a thread of their own, one after the other; those
that come while a commit is under way share the next one.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import time
from typing import Any, Final, NamedTuple, TypeVar

from polydomo import private_files
from polydomo.errors import ConfigError, PolydomoError

T = TypeVar("T")

DAY: Final = 86400.0

# How long to wait for another process that has the file locked, in seconds.
PATIENCE: Final = 10.0

# Old rows are removed at the start, and then after so many changes.
SWEEP_EVERY: Final = 1000

# A worker's jobs that were begun and never ended are kept for so much longer: they may be running.
FORGOTTEN: Final = 7 * DAY

CLIENT_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY,
    service TEXT NOT NULL,
    target TEXT NOT NULL,
    body BLOB NOT NULL,
    codec TEXT NOT NULL,
    submitted REAL NOT NULL,
    ended REAL,
    result BLOB,
    failure TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS jobs_ended ON jobs (ended);
"""

WORKER_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS jobs (
    service TEXT NOT NULL,
    id TEXT NOT NULL,
    body BLOB NOT NULL,
    received REAL NOT NULL,
    ended REAL,
    status TEXT NOT NULL DEFAULT '',
    result BLOB,
    PRIMARY KEY (service, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS jobs_ended ON jobs (ended);
"""


class NotKept(PolydomoError):
    """The file given as `store=` cannot be used, so a job was not sent."""

    code = "not-kept"
    hint = "is the disk full, or the file another program's? look at the path given as store="


class Sqlite:
    """One file, one thread. `synchronous`: FULL is safe when the machine loses power, NORMAL when the process dies."""

    def __init__(self, path: str | Path, schema: str, synchronous: str) -> None:
        self.path = Path(path)
        self._schema = schema
        self._synchronous = synchronous
        self._thread: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None
        self._waiting: list[tuple[Callable[[sqlite3.Connection], Any], asyncio.Future[Any]]] = []
        self._draining: asyncio.Task[None] | None = None

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do it in the thread; what it changed is committed when this returns."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, done))
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain())
        return await done

    async def close(self) -> None:
        """When everything has been written."""
        while self._draining is not None:
            await asyncio.wait({self._draining})
        if self._thread is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
            self._thread.shutdown(wait=False)
            self._thread = None

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="polydomo-store")
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                works = [work for work, _ in batch]
                ends = await loop.run_in_executor(self._thread, self._together, works)
                for (_, done), (value, error) in zip(batch, ends, strict=True):
                    if done.done():
                        continue
                    if error is None:
                        done.set_result(value)
                    else:
                        done.set_exception(error)
        finally:
            self._draining = None
            for _, done in self._waiting:  # only if the loop is being closed
                done.cancel()
            self._waiting = []

    def _together(
        self, works: list[Callable[[sqlite3.Connection], Any]]
    ) -> list[tuple[Any, Exception | None]]:
        """In the thread: one transaction for all; if it cannot be committed, none of them was done."""
        try:
            connection = self._connect()
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                return [(work(connection), None) for work in works]
        except (sqlite3.Error, OSError) as error:
            self._disconnect()
            trouble = NotKept(f"{self.path}: {error}")
            return [(None, trouble) for _ in works]

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            private_files.make_folder(self.path.parent)
            private_files.make_file(self.path)
            connection = sqlite3.connect(
                self.path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
            )
            self._connection = connection
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.executescript(self._schema)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class KeptJob(NamedTuple):
    """A job as a client has it on disk."""

    id: str
    service: str
    target: str
    body: bytes  # canonical (wire.frames), as it was sent
    codec: str
    submitted: float  # wall time


class ClientStore:
    """A client's jobs: recorded before they are sent, and how they ended. Those that ended are kept for `keep`
    seconds, with their results."""

    def __init__(self, path: str | Path, keep: float = DAY) -> None:
        if keep < 0:
            raise ConfigError(f"keep={keep:g}: jobs cannot be kept for less than no time", hint="")
        self.keep = keep
        self._file = Sqlite(path, CLIENT_SCHEMA, "FULL")
        self._changes = 0

    async def add(self, job: KeptJob) -> None:
        """It is about to be sent. One that is sent again keeps its first record."""
        await self._change(
            "INSERT OR IGNORE INTO jobs (id, service, target, body, codec, submitted) VALUES "
            "(?, ?, ?, ?, ?, ?)",
            tuple(job),
        )

    async def end(self, uid: str, result: bytes | None, failure: str = "") -> None:
        """It has ended: with a result, or with the reason why there is none."""
        await self._change(
            "UPDATE jobs SET ended = ?, result = ?, failure = ? WHERE id = ?", (time(), result, failure, uid)
        )

    async def unfinished(self) -> list[KeptJob]:
        """Those whose end is not known, oldest first."""
        query = "SELECT id, service, target, body, codec, submitted FROM jobs WHERE ended IS NULL ORDER BY submitted"
        return [KeptJob(*row) for row in await self._file.run(lambda file: file.execute(query).fetchall())]

    async def ended(self, uid: str) -> tuple[bytes | None, str] | None:
        """The result of a job, or why it has none; None if it is not known here or has not ended."""
        query = "SELECT result, failure FROM jobs WHERE id = ? AND ended IS NOT NULL"
        row: tuple[bytes | None, str] | None = await self._file.run(
            lambda file: file.execute(query, (uid,)).fetchone()
        )
        return row

    async def close(self) -> None:
        """When everything has been written."""
        await self._file.close()

    async def _change(self, statement: str, values: Iterable[Any]) -> None:
        sweep = self._changes % SWEEP_EVERY == 0
        self._changes += 1
        kept = tuple(values)

        def work(file: sqlite3.Connection) -> None:
            if sweep:
                file.execute("DELETE FROM jobs WHERE ended < ?", (time() - self.keep,))
            file.execute(statement, kept)

        await self._file.run(work)


class Outcome(NamedTuple):
    """What a worker made of a job."""

    status: str  # three digits
    body: bytes  # canonical (wire.frames)


class WorkerStore:
    """A worker's requests and results, for `keep` seconds. Named by service and the client's UUID."""

    def __init__(self, path: str | Path, keep: float = DAY) -> None:
        if keep < 0:
            raise ConfigError(f"keep={keep:g}: jobs cannot be kept for less than no time", hint="")
        self.keep = keep
        self._file = Sqlite(path, WORKER_SCHEMA, "NORMAL")
        self._changes = 0

    async def begin(self, service: str, uid: str, body: bytes) -> Outcome | None:
        """The job is about to be run: it is on record when this returns. Or it was done before: how it ended."""

        def work(file: sqlite3.Connection) -> Outcome | None:
            self._sweep(file)
            known = self._look(file, service, uid)
            if known is not None and known.status == "200" and self._is_same(file, service, uid, body):
                return known
            file.execute(
                "INSERT OR REPLACE INTO jobs (service, id, body, received) VALUES (?, ?, ?, ?)",
                (service, uid, body, time()),
            )
            return None

        return await self._file.run(work)

    async def finish(self, service: str, uid: str, outcome: Outcome) -> None:
        """It has ended so."""
        statement = "UPDATE jobs SET ended = ?, status = ?, result = ? WHERE service = ? AND id = ?"
        values = (time(), outcome.status, outcome.body, service, uid)
        await self._file.run(lambda file: file.execute(statement, values).rowcount)

    async def find(self, service: str, uid: str) -> Outcome | None:
        """How it ended, if it is kept here and did."""
        return await self._file.run(lambda file: self._look(file, service, uid))

    async def close(self) -> None:
        """When everything has been written."""
        await self._file.close()

    def _look(self, file: sqlite3.Connection, service: str, uid: str) -> Outcome | None:
        query = "SELECT status, result, ended FROM jobs WHERE service = ? AND id = ? AND ended >= ?"
        row = file.execute(query, (service, uid, time() - self.keep)).fetchone()
        return None if row is None else Outcome(row[0], row[1])

    def _is_same(self, file: sqlite3.Connection, service: str, uid: str, body: bytes) -> bool:
        """A UUID that is used again for something else is another job."""
        query = "SELECT 1 FROM jobs WHERE service = ? AND id = ? AND body = ?"
        return file.execute(query, (service, uid, body)).fetchone() is not None

    def _sweep(self, file: sqlite3.Connection) -> None:
        if self._changes % SWEEP_EVERY == 0:
            old = time() - self.keep
            file.execute("DELETE FROM jobs WHERE ended < ?", (old,))
            file.execute("DELETE FROM jobs WHERE ended IS NULL AND received < ?", (old - FORGOTTEN,))
        self._changes += 1


class Memory:
    """The same for a worker without a store: the last few results, so that a broker that lost an answer can have it
    again."""

    MOST: Final = 256
    MOST_BYTES: Final = 16 * 1024 * 1024

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Outcome] = {}
        self._asked: dict[tuple[str, str], int] = {}  # what was asked, as its hash
        self._bytes = 0

    async def begin(self, service: str, uid: str, body: bytes) -> Outcome | None:
        """How it ended before, if it was done."""
        known = self._kept.get((service, uid))
        if known is not None and known.status == "200" and self._asked.get((service, uid)) == hash(body):
            return known
        self._forget((service, uid))
        self._asked[service, uid] = hash(body)
        return None

    async def finish(self, service: str, uid: str, outcome: Outcome) -> None:
        """It has ended so."""
        self._kept[service, uid] = outcome
        self._bytes += len(outcome.body)
        while len(self._kept) > self.MOST or self._bytes > self.MOST_BYTES:
            self._forget(next(iter(self._kept)))

    async def find(self, service: str, uid: str) -> Outcome | None:
        """How it ended, if it is among the last."""
        return self._kept.get((service, uid))

    async def close(self) -> None:
        """There is nothing to write."""

    def clear(self) -> None:
        """Begin anew."""
        self._kept.clear()
        self._asked.clear()
        self._bytes = 0

    def _forget(self, key: tuple[str, str]) -> None:
        self._asked.pop(key, None)
        gone = self._kept.pop(key, None)
        if gone is not None:
            self._bytes -= len(gone.body)
