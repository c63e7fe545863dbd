"""The same files as norfab's service `filesharing`, so that its clients fetch files with no worker of their own.

`fetch_file` as norfab's client has it: the first chunk comes by itself as STREAM; then one for each PUT
`{"offset": n}`, in the order they came; when the end of the file was sent, the job is answered. A client that asks for
nothing for `chunk_timeout` seconds has given up.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from polydomo._version import __version__
from polydomo.core.broker import Broker
from polydomo.core.job import Job
from polydomo.core.timers import Timer
from polydomo.services.builtin import BuiltIn, Task, failure_of, perform, read_task
from polydomo.services.files import CHUNK, Files, check_range, open_file, whole
from polydomo.services.folder import OpenFile
from polydomo.wire.frames import frame, join, split

SERVICE = b"filesharing"
WORKER = b"filesharing-broker"

# Chunks that a client may have asked for and not got yet.
MOST_WANTED = 1000


class FileSharing(BuiltIn):
    """A worker in the broker. `stats` are the process's own figures."""

    def __init__(
        self, broker: Broker, files: Files, idle: float, stats: Callable[[], dict[str, Any]] | None = None
    ) -> None:
        super().__init__(broker, self._answer, WORKER)
        self.files = files
        self.idle = idle  # the longest a transfer waits for its client
        self.stats = stats
        self.transfers: dict[bytes, Transfer] = {}
        self.tasks: dict[str, Callable[..., Any]] = {
            **files.tasks,
            "get_status": lambda: "OK",
            "get_version": self.get_version,
            "get_inventory": lambda: {"service": SERVICE.decode(), "base_dir": files.folder.path},
            "get_stats": self.get_stats,
        }
        self.limit(files.most_transfers, idle)
        self.offer(SERVICE)

    def limit(self, transfers: int, idle: float) -> None:
        """So many jobs at once; others wait for their turn."""
        self.files.most_transfers = self.worker.base_credit = self.worker.credit = transfers
        self.idle = idle

    def dispatch(self, job: Job) -> None:
        try:
            asked = read_task(split(job.body))
            if asked.task == "fetch_file":
                self._fetch(job, asked)
                return
        except Exception as error:
            self._failed(job.token, error)
            return
        super().dispatch(job)

    def put(self, job: Job, body: bytes) -> bool:
        transfer = self.transfers.get(job.token)
        if transfer is not None:
            transfer.wanted_more(split(body))
        return transfer is not None

    def cancel(self, job: Job) -> None:
        transfer = self.transfers.get(job.token)
        if transfer is not None:
            transfer.close()
        super().cancel(job)

    def close(self) -> None:
        """The broker stops: nobody is sent anything any more."""
        for transfer in list(self.transfers.values()):
            transfer.fail(ValueError("the broker stops"))

    def get_version(self) -> dict[str, str]:
        """What answers here."""
        return {"polydomo": __version__, "python": sys.version.split(" ")[0], "platform": sys.platform}

    def get_stats(self) -> dict[str, Any]:
        """What norfab's own monitoring expects of a worker."""
        return {
            **({} if self.stats is None else self.stats()),
            "name": WORKER.decode(),
            "role": "worker",
            "status": "active",
            "service": SERVICE.decode(),
            "broker": "",
            "reconnects": 0,
            "outbound_queue_depth": 0,
            "running_jobs": len(self.worker.running),
            "max_concurrent_jobs": self.files.most_transfers,
            "watchdog_runs": 0,
            "keepalives_sent": 0,
            "keepalives_received": 0,
        }

    def _answer(self, frames: list[bytes]) -> Any:
        return perform(self.tasks, read_task(frames))

    def _fetch(self, job: Job, asked: Task) -> None:
        token = job.token
        if asked.args:
            raise ValueError("fetch_file takes its arguments by name")

        def fetch_file(
            url: str, offset: int = 0, chunk_size: int = CHUNK, chunk_timeout: float = 5, **_: Any
        ) -> Transfer:
            check_range(offset, chunk_size)
            if isinstance(chunk_timeout, bool) or not isinstance(chunk_timeout, int | float):
                raise ValueError(f"chunk_timeout is a number of seconds, not {chunk_timeout!r}")
            patience = min(max(chunk_timeout, 0.1), self.idle)
            return Transfer(self, token, job, url, offset, chunk_size, patience)

        transfer: Transfer = perform({"fetch_file": fetch_file}, asked)
        self.files.begin()
        self.transfers[token] = transfer
        transfer.start()


class Transfer(Timer):
    """One file on its way to one client. At most one chunk is read at a time."""

    def __init__(
        self,
        port: FileSharing,
        token: bytes,
        job: Job,
        url: str,
        offset: int,
        chunk_size: int,
        patience: float,
    ) -> None:
        super().__init__()
        self.port = port
        self.token = token
        self.job = job
        self.url = url
        self.chunk_size = chunk_size
        self.patience = patience
        self.file: OpenFile | None = None
        self.wanted: deque[int] = deque([offset])
        self.reading = False
        self.closed = False

    def start(self) -> None:
        """Send the first chunk."""
        self._next()

    def wanted_more(self, frames: list[bytes]) -> None:
        """The client says where the chunk it wants next begins."""
        try:
            wish = msgspec.json.decode(frames[0] if frames else b"", type=dict[str, Any])
            check_range(wish.get("offset"), self.chunk_size)
            if len(self.wanted) >= MOST_WANTED:
                raise ValueError(f"{MOST_WANTED} chunks were asked for and not yet sent")
        except (ValueError, msgspec.MsgspecError) as error:
            self.fail(ValueError(f"{self.url}: {error}"))
            return
        self.wanted.append(whole("offset", wish["offset"]))
        self._next()

    def fire(self, now: float) -> None:
        """The client has asked for nothing in time."""
        self.fail(ValueError(f"{self.url}: the client asked for no further chunk within {self.patience:g} s"))

    def fail(self, error: Exception) -> None:
        """It ends without the whole file."""
        if not self.closed:
            self.close()
            self.port.broker.fail(self.port.worker, self.token, failure_of(error))

    def close(self) -> None:
        """Nothing more is sent."""
        if not self.closed:
            self.closed = True
            self.port.broker.timers.clear(self)
            del self.port.transfers[self.token]
            # While a thread reads, its descriptor must not be closed and given to another file.
            if not self.reading:
                self.port.files.end(self.file)

    def _next(self) -> None:
        if self.closed or self.reading:
            return
        broker = self.port.broker
        if self.wanted:
            broker.timers.clear(self)
            self.reading = True
            self.port.files.background.run(self._read, self._send, self._unreadable)
        else:
            broker.timers.set(self, broker.now + self.patience)

    def _read(self) -> bytes:
        """In a thread."""
        if self.file is None:
            self.file = open_file(self.port.files.folder, self.url)
        return self.file.read(self.wanted[0], self.chunk_size)

    def _send(self, data: bytes) -> None:
        self.reading = False
        file = self.file
        if self.closed or file is None:
            self.port.files.end(file)
            return
        end = self.wanted.popleft() + len(data)
        broker = self.port.broker
        if data:
            broker.stream(self.port.worker, self.token, frame(data))
        if end >= file.size or not data:
            self.close()
            broker.final(self.port.worker, self.token, join([b"true"]))
        elif self.job.client.gone:
            self.fail(ValueError("its client went away"))
        else:
            self._next()

    def _unreadable(self, error: Exception) -> None:
        self.reading = False
        if self.closed:
            self.port.files.end(self.file)
        else:
            self.fail(error)
