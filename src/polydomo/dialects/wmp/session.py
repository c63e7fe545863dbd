"""The broker's side of WMP: it is a manager for all its services.

One session is one connection: a worker, or a device with any number of workers behind it. Jobs are the core's; they
wait there until a worker that was woken asks for one (`herd`), or somebody else was faster.

Of a worker with one job at a time it is known what it will say next: GIVE when it was woken, DONE when it has a job. As
in MDP the bytes that this begins with are prepared, and everything else is looked at frame by frame.
"""

from __future__ import annotations

from typing import Final

from polydomo.core.service import Service
from polydomo.dialects.session import PeerConnection, Session, SessionContext
from polydomo.dialects.wmp import messages
from polydomo.dialects.wmp.broker_worker import WmpWorker
from polydomo.dialects.wmp.messages import DONE, GIVE, NAMES, PROTOCOL, READY, STATUS
from polydomo.dialects.wmp.wakeup import WakeScheduler
from polydomo.errors import ProtocolError
from polydomo.wire import cbor
from polydomo.wire.frames import DELIMITER, Message, frame

# How these begin that come from a worker without a device between.
GIVE_HEAD: Final = messages.HEADS[GIVE] + DELIMITER
DONE_HEAD: Final = messages.HEADS[DONE] + DELIMITER


class WmpSession(Session):
    """See the module's text."""

    def __init__(self, context: SessionContext, link: PeerConnection) -> None:
        super().__init__(context, link)
        self.manager = context.broker_id
        self.workers: dict[tuple[bytes, ...], WmpWorker] = {}
        self.direct: WmpWorker | None = None  # the one without a device between
        self.awaited = 0  # GIVE or DONE: what it will probably say next

    def receive_expected(self, body: bytes) -> None:
        """GIVE, up to its headers; or DONE with all of them, for the job that was given last."""
        worker = self.direct
        if worker is None:
            return
        try:
            if self.awaited == GIVE:
                worker.give(body[2:] if body[0] == 0 else messages.only_frame(body))
            else:
                worker.done_well(body)
        except ProtocolError as error:
            self.link.report_violation(error.message)

    def await_give(self) -> None:
        """It was woken."""
        self.awaited = GIVE
        self.link.expect(self, GIVE_HEAD)

    def await_done(self, token: bytes) -> None:
        """It was given a job."""
        self.awaited = DONE
        self.link.expect(self, DONE_HEAD + frame(messages.done_headers(token), True))

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

    def reattach(self, link: PeerConnection) -> None:
        """Workers leave with their connection."""

    def abandon(self) -> None:
        """There is no client here."""

    def is_worker(self) -> bool:
        return bool(self.workers)

    def set_reading_paused(self, reading_paused: bool) -> None:
        for worker in self.workers.values():
            worker.core.set_deaf(reading_paused)

    def herd(self, service: Service) -> WakeScheduler:
        """Where its WMP workers are."""
        wakeup = service.wakeup
        if isinstance(wakeup, WakeScheduler):
            return wakeup
        herd = WakeScheduler(self.broker, service, self.broker.random)
        service.wakeup = herd
        return herd

    def forget(self, worker: WmpWorker) -> None:
        """It is no worker here any more."""
        self.workers.pop(worker.path, None)
        if self.direct is worker:
            self.direct = None

    def _command(self, message: Message) -> None:
        command = message.take()
        if command is None or len(command) != 1:
            raise ProtocolError("a WMP message without a command")
        kind = command[0]
        path = messages.path(message, messages.HOPS)
        headers = message.take()
        if headers is None or len(headers) > messages.HEADERS_MAX:
            raise ProtocolError("a WMP message without headers, or with too big ones")
        worker = self.direct if not path else self.workers.get(tuple(path))
        if kind == READY:
            self._ready(worker, path, headers)
        elif kind not in messages.FROM_WORKERS:
            name = NAMES[kind] if kind < len(NAMES) else str(kind)
            raise ProtocolError(f"WMP command {name} is not a worker's")
        elif worker is None:
            if kind == GIVE:  # of before our restart, perhaps: it holds a place for us
                self._stranger(path, headers)
        elif kind == GIVE:
            worker.give(headers)
        elif kind == DONE:
            worker.done(headers, message.rest())
        elif kind == STATUS:
            worker.status(headers, message.rest())

    def _ready(self, worker: WmpWorker | None, path: list[bytes], headers: bytes) -> None:
        if worker is None:
            said = cbor.decode_map(headers)
            if not messages.tokens(said, "roles"):
                if said.get("gone"):
                    self._gone(path)
                return
            if len(self.workers) >= self.context.wmp_workers:
                raise ProtocolError(f"more than {self.context.wmp_workers} WMP workers on one connection")
            worker = WmpWorker(self, path)
            self.workers[worker.path] = worker
            if not path:
                self.direct = worker
        elif (
            messages.slots_in(headers) < 0
            and worker.is_news(headers)
            and cbor.decode_map(headers).get("gone")
        ):
            self._gone(path)
            return
        try:
            worker.ready(headers)
        except ProtocolError:
            if not worker.core.services:
                self.forget(worker)
            raise

    def _gone(self, path: list[bytes]) -> None:
        """A device lost a peer: everybody whose path goes through it is gone with it."""
        way = tuple(path)
        length = len(way)
        for worker in list(self.workers.values()):
            if worker.path[:length] == way:
                worker.leave("a device lost it")

    def _stranger(self, path: list[bytes], headers: bytes) -> None:
        said = cbor.decode_map(headers)
        answer = messages.only_wake(messages.whole(said, "wake"))
        self.link.send(messages.write(path, messages.NO, [], answer, b""))
