"""norfab's service `filesharing` on the shared folder, so that norfab's clients need no file worker.

`fetch_file` follows norfab's client: the first chunk is sent at once as STREAM, then one for each PUT `{"offset": n}`
in order of arrival; after the end of the file the job is answered. A transfer without a PUT for `chunk_timeout` seconds
fails.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from polydomo._version import __version__
from polydomo.core.model import Job
from polydomo.core.timers import Timer
from polydomo.services.authorizer import Authorizer
from polydomo.services.builtin import BuiltIn, Task, Tasks, call, failure_of, read_task
from polydomo.services.files import CHUNK, Files, check_range, open_file, whole
from polydomo.services.folder import OpenFile
from polydomo.wire.frames import frame, join, split

SERVICE = b"filesharing"
WORKER = b"filesharing-broker"

# Chunks that a client may request ahead.
MOST_REQUESTED = 1000


class FileSharing(BuiltIn):
    """The service's worker. `stats` returns the statistics of the process."""

    def __init__(
        self,
        authorizer: Authorizer,
        files: Files,
        idle: float,
        stats: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(
            authorizer.broker,
            lambda frames, caller: self.tasks.perform(read_task(frames), caller),
            WORKER,
        )
        self.files = files
        self.stats = stats
        self.transfers: dict[bytes, FileTransfer] = {}
        self.tasks = Tasks(authorizer, SERVICE.decode())
        self.tasks.add(
            {
                **files.tasks,
                "get_status": lambda: "OK",
                "get_version": self.get_version,
                "get_inventory": lambda: {"service": SERVICE.decode(), "base_dir": files.folder.path},
                "get_stats": self.get_stats,
            }
        )
        self.configure(files.most_transfers, idle)
        self.offer(SERVICE)

    def configure(self, transfers: int, idle: float) -> None:
        """Set the number of concurrent transfers and the longest time that one waits for its client."""
        self.files.most_transfers = self.worker.base_credit = self.worker.credit = transfers
        self.idle = idle

    def dispatch(self, job: Job) -> None:
        try:
            requested = read_task(split(job.body))
            if requested.task == "fetch_file":
                self._fetch(job, requested)
                return
        except Exception as error:
            self._fail(job.token, error)
            return
        super().dispatch(job)

    def put(self, job: Job, body: bytes) -> bool:
        transfer = self.transfers.get(job.token)
        if transfer is not None:
            transfer.request_chunk(split(body))
        return transfer is not None

    def cancel(self, job: Job) -> None:
        transfer = self.transfers.get(job.token)
        if transfer is not None:
            transfer.close()
        super().cancel(job)

    def close(self) -> None:
        """Fail all transfers because the broker stops."""
        for transfer in list(self.transfers.values()):
            transfer.fail(ValueError("the broker stops"))

    def get_version(self) -> dict[str, str]:
        """Return the versions of the broker and of Python."""
        return {"polydomo": __version__, "python": sys.version.split(" ")[0], "platform": sys.platform}

    def get_stats(self) -> dict[str, Any]:
        """Return a worker's statistics in norfab's form."""
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

    def _fetch(self, job: Job, requested: Task) -> None:
        token = job.token
        if requested.args:
            raise ValueError("fetch_file takes its arguments by name")

        def fetch_file(
            url: str, offset: int = 0, chunk_size: int = CHUNK, chunk_timeout: float = 5, **_: Any
        ) -> FileTransfer:
            check_range(offset, chunk_size)
            if isinstance(chunk_timeout, bool) or not isinstance(chunk_timeout, int | float):
                raise ValueError(f"chunk_timeout is a number of seconds, not {chunk_timeout!r}")
            timeout = min(max(chunk_timeout, 0.1), self.idle)
            return FileTransfer(self, token, job, url, offset, chunk_size, timeout)

        transfer: FileTransfer = call("fetch_file", fetch_file, [], requested.kwargs)
        self.files.begin_transfer()
        self.transfers[token] = transfer
        transfer.send_next()


class FileTransfer(Timer):
    """Transfer of one file to one client. At most one chunk is read at a time."""

    def __init__(
        self,
        port: FileSharing,
        token: bytes,
        job: Job,
        url: str,
        offset: int,
        chunk_size: int,
        timeout: float,
    ) -> None:
        super().__init__()
        self.port = port
        self.token = token
        self.job = job
        self.url = url
        self.chunk_size = chunk_size
        self.timeout = timeout
        self.file: OpenFile | None = None
        self.requested: deque[int] = deque([offset])  # offsets of chunks
        self.reading = False
        self.closed = False

    def request_chunk(self, frames: list[bytes]) -> None:
        """Add the chunk at the offset that the client sent."""
        try:
            request = msgspec.json.decode(frames[0] if frames else b"", type=dict[str, Any])
            check_range(request.get("offset"), self.chunk_size)
            if len(self.requested) >= MOST_REQUESTED:
                raise ValueError(f"{MOST_REQUESTED} chunks were requested and not yet sent")
        except (ValueError, msgspec.MsgspecError) as error:
            self.fail(ValueError(f"{self.url}: {error}"))
            return
        self.requested.append(whole("offset", request["offset"]))
        self.send_next()

    def fire(self, now: float) -> None:
        """Fail because the client did not request a chunk in time."""
        self.fail(ValueError(f"{self.url}: the client requested no further chunk within {self.timeout:g} s"))

    def fail(self, error: Exception) -> None:
        """End the transfer and fail the job."""
        if not self.closed:
            self.close()
            self.port.broker.fail(self.port.worker, self.token, failure_of(error))

    def close(self) -> None:
        """End the transfer and release its file."""
        if not self.closed:
            self.closed = True
            self.port.broker.timers.clear(self)
            del self.port.transfers[self.token]
            # While a thread reads the file, its descriptor must not be closed: the number could be reused.
            if not self.reading:
                self.port.files.end_transfer(self.file)

    def send_next(self) -> None:
        """Read and send the next requested chunk, or wait for a request."""
        if self.closed or self.reading:
            return
        broker = self.port.broker
        if self.requested:
            broker.timers.clear(self)
            self.reading = True
            self.port.files.threads.run(self._read, self._send, self._unreadable)
        else:
            broker.timers.set(self, broker.now + self.timeout)

    def _read(self) -> bytes:
        """Read a chunk; runs in a thread."""
        if self.file is None:
            self.file = open_file(self.port.files.folder, self.url)
        return self.file.read(self.requested[0], self.chunk_size)

    def _send(self, data: bytes) -> None:
        self.reading = False
        file = self.file
        if self.closed or file is None:
            self.port.files.end_transfer(file)
            return
        end = self.requested.popleft() + len(data)
        broker = self.port.broker
        if data:
            broker.stream(self.port.worker, self.token, frame(data))
        if end >= file.size or not data:
            self.close()
            broker.final(self.port.worker, self.token, join([b"true"]))
        elif self.job.client.gone:
            self.fail(ValueError("the client disconnected"))
        else:
            self.send_next()

    def _unreadable(self, error: Exception) -> None:
        self.reading = False
        if self.closed:
            self.port.files.end_transfer(self.file)
        else:
            self.fail(error)
