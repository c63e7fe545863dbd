"""Job records that NFP's peers keep on their own disk (NFP §Job Persistence): a client's jobs, a worker's requests and
results.

Both are one SQLite file in write-ahead-log mode. Statements run in a thread of their own, one after the other; those
submitted during a commit share the next one.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import time
from typing import Any, Final, NamedTuple, TypeVar

from polydomo import private_files
from polydomo.errors import ConfigError, PolydomoError

T = TypeVar("T")

DAY: Final = 86400.0

# Seconds to wait for another process that has locked the file.
LOCK_TIMEOUT: Final = 10.0

# Old rows are deleted at the first change, and then every so many changes.
CHANGES_PER_SWEEP: Final = 1000

# A worker's unfinished jobs are kept for so much longer than finished ones: they may be running.
UNFINISHED_EXTRA: Final = 7 * DAY

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


FIND_RESULT: Final = "SELECT status, result FROM jobs WHERE service = ? AND id = ? AND ended >= ?"


class NotKept(PolydomoError):
    """The file given as `store=` cannot be used, so a job was not sent."""

    code = "not-kept"
    hint = "is the disk full, or the file another program's? look at the path given as store="


class JobFile:
    """One SQLite file and its thread. Jobs are kept for `keep` seconds after their end. `synchronous`: FULL survives a
    power failure, NORMAL the end of the process."""

    def __init__(self, path: str | Path, schema: str, synchronous: str, keep: float, sweep: str) -> None:
        if keep < 0:
            raise ConfigError(f"keep={keep:g}: it must not be negative", hint="")
        self.path = Path(path)
        self.keep = keep
        self._schema = schema
        self._synchronous = synchronous
        self._sweep = sweep  # the statement that deletes old rows
        self._changes = 0
        self._thread: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None
        self._waiting: list[tuple[Callable[[sqlite3.Connection], Any], asyncio.Future[Any]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function in the thread; its changes are committed when this returns."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, done))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())
        return await done

    async def change(self, statement: str, values: tuple[Any, ...]) -> None:
        """Execute one statement; delete old rows first if it is time."""
        await self.run(lambda file: self.execute(file, statement, values))

    def execute(self, file: sqlite3.Connection, statement: str, values: tuple[Any, ...]) -> None:
        """Do the same inside a function that `run` runs."""
        if self._changes % CHANGES_PER_SWEEP == 0:
            file.execute(
                self._sweep, {"finished": self.oldest(), "unfinished": self.oldest() - UNFINISHED_EXTRA}
            )
        self._changes += 1
        file.execute(statement, values)

    def oldest(self) -> float:
        """Return the end time of the oldest finished job that is kept."""
        return time() - self.keep

    async def close(self) -> None:
        """Wait until everything is written, then close the file."""
        while self._writer is not None:
            await asyncio.wait({self._writer})
        if self._thread is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
            self._thread.shutdown(wait=False)
            self._thread = None

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="polydomo-store")
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                works = [work for work, _ in batch]
                outcomes = await loop.run_in_executor(self._thread, self._transaction, works)
                for (_, done), (value, error) in zip(batch, outcomes, strict=True):
                    if done.done():
                        continue
                    if error is None:
                        done.set_result(value)
                    else:
                        done.set_exception(error)
        finally:
            self._writer = None
            for _, done in self._waiting:  # only if the loop is being closed
                done.cancel()
            self._waiting = []

    def _transaction(
        self, works: list[Callable[[sqlite3.Connection], Any]]
    ) -> list[tuple[Any, Exception | None]]:
        """Run all functions in one transaction, in the thread; if it cannot be committed, all have failed."""
        try:
            connection = self._connect()
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                return [(work(connection), None) for work in works]
        except (sqlite3.Error, OSError) as error:
            self._disconnect()
            failure = NotKept(f"{self.path}: {error}")
            return [(None, failure) for _ in works]

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            private_files.make_folder(self.path.parent)
            private_files.make_file(self.path)
            connection = sqlite3.connect(
                self.path, timeout=LOCK_TIMEOUT, isolation_level=None, check_same_thread=False
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


class ClientJob(NamedTuple):
    """A job in a client's file."""

    id: str
    service: str
    target: str
    body: bytes  # canonical (wire.frames), as sent
    codec: str
    submitted: float  # wall time


class ClientStore:
    """A client's jobs, recorded before they are sent, and their results. Finished jobs are kept for `keep` seconds."""

    def __init__(self, path: str | Path, keep: float = DAY) -> None:
        self._file = JobFile(path, CLIENT_SCHEMA, "FULL", keep, "DELETE FROM jobs WHERE ended < :finished")

    async def add(self, job: ClientJob) -> None:
        """Record a job before it is sent. A job that is sent again keeps its first record."""
        await self._file.change(
            "INSERT OR IGNORE INTO jobs (id, service, target, body, codec, submitted) VALUES (?, ?, ?, ?, ?, ?)",
            tuple(job),
        )

    async def end(self, uid: str, result: bytes | None, failure: str = "") -> None:
        """Record a job's result, or the reason why it has none."""
        await self._file.change(
            "UPDATE jobs SET ended = ?, result = ?, failure = ? WHERE id = ?", (time(), result, failure, uid)
        )

    async def unfinished(self) -> list[ClientJob]:
        """Return the jobs without a recorded end, oldest first."""
        query = "SELECT id, service, target, body, codec, submitted FROM jobs WHERE ended IS NULL ORDER BY submitted"
        return [ClientJob(*row) for row in await self._file.run(lambda file: file.execute(query).fetchall())]

    async def close(self) -> None:
        """Wait until everything is written, then close the file."""
        await self._file.close()


class NfpResult(NamedTuple):
    """A worker's result of one job."""

    status: str  # three digits
    body: bytes  # canonical (wire.frames)


class WorkerStore:
    """A worker's requests and results, by service and the client's UUID. Results are kept for `keep` seconds."""

    def __init__(self, path: str | Path, keep: float = DAY) -> None:
        sweep = "DELETE FROM jobs WHERE ended < :finished OR ended IS NULL AND received < :unfinished"
        self._file = JobFile(path, WORKER_SCHEMA, "NORMAL", keep, sweep)

    async def begin(self, service: str, uid: str, body: bytes) -> NfpResult | None:
        """Record a job before it is run. Return its result if the same job succeeded before."""

        def work(file: sqlite3.Connection) -> NfpResult | None:
            # A UUID that is used again with another body is another job.
            row = file.execute(
                f"{FIND_RESULT} AND status = '200' AND body = ?", (service, uid, self._file.oldest(), body)
            ).fetchone()
            if row is not None:
                return NfpResult(*row)
            self._file.execute(
                file,
                "INSERT OR REPLACE INTO jobs (service, id, body, received) VALUES (?, ?, ?, ?)",
                (service, uid, body, time()),
            )
            return None

        return await self._file.run(work)

    async def finish(self, service: str, uid: str, result: NfpResult) -> None:
        """Record a job's result."""
        await self._file.change(
            "UPDATE jobs SET ended = ?, status = ?, result = ? WHERE service = ? AND id = ?",
            (time(), result.status, result.body, service, uid),
        )

    async def find(self, service: str, uid: str) -> NfpResult | None:
        """Return a job's result, if it has ended and is kept."""
        values = (service, uid, self._file.oldest())
        row = await self._file.run(lambda file: file.execute(FIND_RESULT, values).fetchone())
        return None if row is None else NfpResult(*row)

    async def close(self) -> None:
        """Wait until everything is written, then close the file."""
        await self._file.close()


class RecentResults:
    """The latest results of a worker without a store, for a broker that lost a reply and asks again."""

    MOST: Final = 256
    MOST_BYTES: Final = 16 * 1024 * 1024

    def __init__(self) -> None:
        # The hash of each job's body, and its result; None: not finished, or cancelled.
        self._jobs: dict[tuple[str, str], tuple[int, NfpResult | None]] = {}
        self._bytes = 0

    async def begin(self, service: str, uid: str, body: bytes) -> NfpResult | None:
        """Return a job's result if the same job succeeded before."""
        known_hash, known = self._jobs.get((service, uid), (0, None))
        if known is not None and known.status == "200" and known_hash == hash(body):
            return known
        self._set((service, uid), hash(body), None)
        return None

    async def finish(self, service: str, uid: str, result: NfpResult) -> None:
        """Record a job's result."""
        known_hash, _ = self._jobs.get((service, uid), (0, None))
        self._set((service, uid), known_hash, result)

    async def find(self, service: str, uid: str) -> NfpResult | None:
        """Return a job's result, if it is among the latest."""
        return self._jobs.get((service, uid), (0, None))[1]

    async def close(self) -> None:
        """Do nothing: there is no file."""

    def clear(self) -> None:
        """Drop all results, as a restart of the worker would."""
        self._jobs.clear()
        self._bytes = 0

    def _set(self, key: tuple[str, str], body_hash: int, result: NfpResult | None) -> None:
        self._drop(key)
        self._jobs[key] = body_hash, result
        self._bytes += 0 if result is None else len(result.body)
        while len(self._jobs) > self.MOST or self._bytes > self.MOST_BYTES:
            self._drop(next(iter(self._jobs)))

    def _drop(self, key: tuple[str, str]) -> None:
        _, dropped = self._jobs.pop(key, (0, None))
        self._bytes -= 0 if dropped is None else len(dropped.body)
