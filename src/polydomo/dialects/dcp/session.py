"""The broker's side of DCP v1.

Everybody starts as a client; a registration makes it a worker too, for one service per registration. What a request
carries besides its data: the client's address, filled in by us if it is missing, and metadata parts, which go to the
worker and come back to the client untouched. Workers are shown a token of the attempt instead of the client's real
address, so they can answer only what they were given; a worker that sends a request with that token passes its job on.
"""

from __future__ import annotations

from typing import Final

from polydomo.core.answers import STRAY
from polydomo.core.extras import Options
from polydomo.core.job import Job
from polydomo.core.ports import WorkerPort
from polydomo.core.worker import Worker
from polydomo.dialects import native_failure
from polydomo.dialects.client_base import ClientBase
from polydomo.dialects.dcp.messages import (
    FOUR_BYTES,
    ONE_BYTE,
    PING,
    PROTOCOL,
    REGISTER,
    REPLY,
    REQUEST,
    Width,
    read_kind,
)
from polydomo.dialects.options import read_json
from polydomo.dialects.session import Context, PeerConnection, Session
from polydomo.wire.frames import DELIMITER, Message, frame, shown, split

DIALECT: Final = "dcp/1"

# How a metadata part begins that is meant for us too (dialects/options.py): `polydomo:{"priority": 3}`.
OPTIONS: Final = b"polydomo:{"


class DcpSession(Session):
    """One DCP peer."""

    def __init__(self, context: Context, link: PeerConnection) -> None:
        super().__init__(context, link)
        self.width: Width = ONE_BYTE
        self.client: DcpClient | None = None
        self.worker: DcpWorker | None = None

    def receive_expected(self, body: bytes) -> None:
        if self.worker is not None:
            self.worker.answered(body)

    def receive(self, message: Message) -> bool:
        start = message.pos
        if message.take() != b"" or message.take() != PROTOCOL:
            message.pos = start
            return False
        known = read_kind(message.take())
        if known is None:
            self.link.complain("DCP type frame is neither one byte nor four")
            return True
        kind, self.width = known
        if kind == REQUEST:
            self._request(message)
        elif kind == REPLY:
            self._reply(message)
        elif kind == PING:
            self._ping(message)
        elif kind == REGISTER:
            self._register(message)
        else:
            self.link.complain(f"DCP type {kind} is not for a broker")
        return True

    def lost(self) -> bool:
        if self.worker is not None:
            self.worker.leave("connection lost")
        return self.client is not None and self.client.lost()

    def reattach(self, link: PeerConnection) -> None:
        self.link = link
        if self.client is not None:
            self.client.reattach(link)

    def abandon(self) -> None:
        if self.client is not None:
            self.client.leave()

    def is_worker(self) -> bool:
        return self.worker is not None and not self.worker.left

    def set_deaf(self, reading_paused: bool) -> None:
        if self.worker is not None:
            self.worker.core.set_deaf(reading_paused)

    def _register(self, message: Message) -> None:
        """DCP §Connection: a registration that counts is echoed."""
        service = message.take()
        if service is None or message.take() is not None:
            return self.link.complain("DCP registration without exactly one service name")
        worker = self.worker
        if worker is None or worker.left:
            worker = DcpWorker(self)
        if not self.broker.may_register(worker.core, service):
            return self.link.complain(
                f"DCP registration for {shown(service)}, a name that is not for workers"
            )
        self.worker = worker
        worker.spoke()
        # First the confirmation, then what has been waiting for such a worker.
        self.link.send(self.width.register_head + frame(service))
        self.broker.register(worker.core, service)
        return None

    def _ping(self, message: Message) -> None:
        """DCP §Heartbeats: every ping gets a pong; a ping of someone not registered gets a reconnect."""
        if message.take() is not None:
            return self.link.complain("DCP heartbeat with parts behind its header")
        worker = self.worker
        if worker is None or worker.left:
            self.link.send(self.width.reconnect)
        else:
            self.link.send(self.width.pong)
            self.broker.seen(worker.core)
            # DCP §Requests & Replies: a busy worker's heartbeat asks for more work.
            if worker.core.running:
                bound = self.context.credit_max
                self.broker.ask_for_more(worker.core, min(self.link.slots or bound, bound))
        return None

    def _request(self, message: Message) -> None:
        service = message.take()
        address = message.take()
        if address and message.take() != b"":
            address = None
        start = message.pos
        end = skip_metadata(message)
        if not service or address is None or end < 0:
            return self.link.complain("DCP request without service, address delimiter and metadata delimiter")
        metadata = message.data[start:end]
        body = message.rest()
        if self.worker is not None:
            self.worker.spoke()
        if address and (address != self.link.identity or self._holds(address)):
            return self._pass_on(address, service, body)
        client = self.client
        if client is None:
            client = DcpClient(self)
            self.client = client
        options: Options | None = None
        if OPTIONS in metadata:
            try:
                options = options_in(metadata)
            except ValueError as error:
                return self.link.complain(f"DCP request with a bad option: {error}")
        self.broker.submit(client.core, service, body, metadata, options)
        return None

    def _holds(self, token: bytes) -> bool:
        """Is it the token of a job it was given? A peer may have chosen an identity that looks like one."""
        return self.worker is not None and token in self.worker.core.running

    def _pass_on(self, token: bytes, service: bytes, body: bytes) -> None:
        """A worker asks another service to complete its job: the address is the token it was given."""
        worker = self.worker
        if worker is None or worker.left or self.broker.forward(worker.core, token, service, body) == STRAY:
            self.link.complain("DCP request with the address of somebody else")

    def _reply(self, message: Message) -> None:
        token = message.take()
        if not token or message.take() != b"" or skip_metadata(message) < 0:
            return self.link.complain("DCP reply without client address and metadata delimiter")
        worker = self.worker
        if worker is None or worker.left or worker.answer(token, message.rest()) == STRAY:
            self.link.complain("DCP reply to a request it was not given")
        return None


class DcpClient(ClientBase):
    """A DCP peer that has asked for something."""

    def __init__(self, session: DcpSession, resumed: bool = False) -> None:
        self._resumed = resumed
        super().__init__(session, DIALECT)
        self.core.form = session.width.variant
        self.session = session
        self._address = frame(session.link.identity, True)

    def resumes(self) -> bool:
        return self._resumed

    def partial(self, job: Job, body: bytes) -> None:
        """DCP has one reply per request: only the final answer reaches its clients."""

    def final(self, job: Job, body: bytes) -> None:
        # The delimiter behind the metadata is the last frame if there is no data at all.
        tail = DELIMITER + body if body else b"\x00\x00"
        self.link.answer(self.session.width.reply_head + self._address + DELIMITER + job.envelope + tail)


class DcpWorker(WorkerPort):
    """A DCP peer that has registered."""

    def __init__(self, session: DcpSession) -> None:
        self.session = session
        self.broker = session.broker
        self.link = session.link
        self.left = False
        self._token = b""
        self.core = Worker(session.broker, session.link.name("dcp"), DIALECT, self, session.context.beat)
        self.core.anonymous = not session.link.named
        if session.link.slots:  # our own SDK says what it can hold, and need not ask for it ping by ping
            self.core.base_credit = self.core.credit = min(session.link.slots, session.context.credit_max)

    def dispatch(self, job: Job) -> None:
        width = self.session.width
        metadata = job.envelope if job.client.dialect == DIALECT else b""
        address = b"\x01\x08" + job.token + DELIMITER
        self._token = job.token
        self.link.expect(self.session, width.reply_head + address + metadata + DELIMITER)
        head = width.request_head + frame(job.service.name, True) + address + metadata
        # The delimiter behind the metadata is the last frame if there is no data at all.
        self.link.send(head + (DELIMITER + job.body if job.body else b"\x00\x00"))

    def answered(self, body: bytes) -> None:
        """The reply that was expected."""
        self.link.expect(self.session, b"")
        self.answer(self._token, body)

    def answer(self, token: bytes, body: bytes) -> int:
        """Any reply."""
        if self.link.native and body.startswith(native_failure.MARK_HEAD):
            failure = native_failure.from_worker(body)
            if failure is not None:
                return self.broker.fail(self.core, token, failure)
        return self.broker.final(self.core, token, body)

    def spoke(self) -> None:
        """DCP §Heartbeats: any message counts as one; but not as proof that it pings while it is busy."""
        self.core.last_seen = self.broker.now

    def dismiss(self, reason: str) -> None:
        """DCP cannot say goodbye; its next ping is answered with a reconnect."""
        self.left = True
        self.link.expect(self.session, b"")

    def leave(self, reason: str) -> None:
        """Gone."""
        if not self.left:
            self.dismiss(reason)
            self.broker.leave(self.core, reason)


def resume_dcp(context: Context, link: PeerConnection, dialect: str, variant: str) -> Session:
    """For a client that has jobs of before the broker's restart: it waits for their replies in its own type width."""
    session = DcpSession(context, link)
    session.width = FOUR_BYTES if variant == FOUR_BYTES.variant else ONE_BYTE
    session.client = DcpClient(session, resumed=True)
    return session


def options_in(metadata: bytes) -> Options | None:
    """What the client says about the job in a metadata part of its own, if it does. Raises ValueError."""
    for part in split(metadata):
        if part.startswith(OPTIONS):
            return read_json(part[len(OPTIONS) - 1 :])
    return None


def skip_metadata(message: Message) -> int:
    """Take the metadata parts and the empty one that ends them. Where they end, or -1 if that never comes."""
    while True:
        end = message.pos
        part = message.take()
        if part is None:
            return -1
        if not part:
            return end
