"""The broker's side of WMP: a manager of all its services.

One session is one connection: a worker, or a device with any number of workers below it. Jobs wait in the core until a
worker that was woken (`wakeup.py`) asks for one, or another worker was faster.
"""

from __future__ import annotations

from polydomo.dialects.session import PeerConnection, Session, SessionContext
from polydomo.dialects.wmp import messages
from polydomo.dialects.wmp.broker_worker import WmpWorker
from polydomo.dialects.wmp.messages import DONE, GIVE, PROTOCOL, READY, STATUS
from polydomo.errors import ProtocolError
from polydomo.wire import cbor
from polydomo.wire.frames import Message


class WmpSession(Session):
    """The workers of one connection, by their paths."""

    def __init__(self, context: SessionContext, link: PeerConnection) -> None:
        super().__init__(context, link)
        self.workers: dict[tuple[bytes, ...], WmpWorker] = {}
        self.direct: WmpWorker | None = None  # the one without a device between

    def receive_expected(self, body: bytes) -> None:
        worker = self.direct
        if worker is None:
            return
        try:
            worker.receive_expected(body)
        except ProtocolError as error:
            self.link.report_violation(error.message)

    def receive(self, message: Message) -> bool:
        start = message.pos
        if message.take() != b"" or message.take() != PROTOCOL:
            message.pos = start
            return False
        try:
            self._command(message)
        except ProtocolError as error:
            self.link.report_violation(error.message)
        return True

    def lost(self) -> bool:
        for worker in list(self.workers.values()):
            worker.leave("connection lost")
        return False

    def is_worker(self) -> bool:
        return bool(self.workers)

    def set_reading_paused(self, reading_paused: bool) -> None:
        for worker in self.workers.values():
            self.broker.set_reading_paused(worker.core, reading_paused)

    def forget(self, worker: WmpWorker) -> None:
        """Remove a worker that is gone."""
        self.workers.pop(worker.path, None)
        if self.direct is worker:
            self.direct = None
            self.link.expect(self, b"")

    def _command(self, message: Message) -> None:
        command = message.take()
        if command is None or len(command) != 1:
            raise ProtocolError("a WMP message without a command")
        kind = command[0]
        path = messages.path(message, messages.HOPS)
        headers = message.take()
        if headers is None or len(headers) > messages.HEADERS_MAX:
            raise ProtocolError("a WMP message without headers, or with headers that are too large")
        worker = self.direct if not path else self.workers.get(tuple(path))
        if kind == READY:
            self._ready(worker, path, headers)
        elif kind not in messages.FROM_WORKERS:
            raise ProtocolError(f"the WMP command {messages.command_name(kind)} is not for managers")
        elif worker is None:
            if kind == GIVE:  # perhaps from before a restart: the worker reserves a slot for the answer
                self._refuse(path, headers)
        elif kind == GIVE:
            worker.give(headers)
        elif kind == DONE:
            worker.done(headers, message.rest())
        elif kind == STATUS:
            worker.status(headers, message.rest())

    def _ready(self, worker: WmpWorker | None, path: list[bytes], headers: bytes) -> None:
        if worker is None:
            decoded = cbor.decode_map(headers)
            if not messages.tokens(decoded, "roles"):
                if decoded.get("gone"):
                    self._remove_below(path)
                return
            if len(self.workers) >= self.context.wmp_workers:
                raise ProtocolError(f"more than {self.context.wmp_workers} WMP workers on one connection")
            worker = WmpWorker(self, self.context.broker_id, path, self.forget)
            self.workers[worker.path] = worker
            if not path:
                self.direct = worker
        elif (
            messages.slots_in(headers) < 0
            and worker.is_new_ready(headers)
            and cbor.decode_map(headers).get("gone")
        ):
            self._remove_below(path)
            return
        try:
            worker.ready(headers)
        except ProtocolError:
            if not worker.core.services:
                self.forget(worker)
            raise

    def _remove_below(self, path: list[bytes]) -> None:
        """Remove all workers whose path goes through a peer that a device has lost."""
        way = tuple(path)
        length = len(way)
        for worker in list(self.workers.values()):
            if worker.path[:length] == way:
                worker.leave("a device lost the connection")

    def _refuse(self, path: list[bytes], headers: bytes) -> None:
        """Answer the GIVE of an unknown worker with NO."""
        wake = messages.wake_in(headers, 0)
        self.link.send(messages.write(path, messages.NO, [], messages.only_wake(wake), b""))
