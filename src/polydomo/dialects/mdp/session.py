"""The broker's side of MDP, in all its forms (see messages.py).

Two shortcuts carry nearly all traffic. A worker that holds one job can send only one thing that matters: FINAL with
that job's token; the bytes such a message begins with are prepared at dispatch, and one comparison checks header,
command, token and delimiter at once. A client mostly asks for the service it asked for last; the bytes of that head
are remembered. Whatever does not match is looked at frame by frame, and only there can anything be refused.
"""

from __future__ import annotations

from polydomo.core.answers import ANSWERED, LATE
from polydomo.core.job import Job
from polydomo.core.ports import WorkerPort
from polydomo.core.worker import Worker
from polydomo.dialects import native_failure
from polydomo.dialects.client_base import ClientBase
from polydomo.dialects.mdp.messages import (
    C_01,
    C_02,
    C_02_REQ,
    C_TOMO,
    CLIENT_01,
    CLIENT_02,
    CLIENT_FORMS,
    TOKEN_FRAME,
    W_01,
    W_02,
    W_TOMO,
    WORKER_01,
    WORKER_02,
    ClientForm,
    WorkerForm,
)
from polydomo.dialects.session import Context, PeerConnection, Session
from polydomo.wire.frames import DELIMITER, EMPTY_BODY, Message, frame, shown


class MdpSession(Session):
    """One MDP peer. Usually a client or a worker; a connection that plays both is served as both."""

    def __init__(self, context: Context, link: PeerConnection) -> None:
        super().__init__(context, link)
        self.client: MdpClient | None = None
        self.worker: MdpWorker | None = None
        self.answer_next = (
            False  # what the link was told to expect: the worker's answer, or the client's next request
        )

    def receive_expected(self, body: bytes) -> None:
        worker = self.worker
        client = self.client
        if worker is not None and self.answer_next:
            worker.answered(body)
        elif client is not None:
            self.broker.submit(client.core, client.usual_service, body, b"")

    def receive(self, message: Message) -> bool:
        start = message.pos
        header = message.take()
        lead = header == b""
        if lead:
            header = message.take()
        if header in (CLIENT_02, CLIENT_01):
            self._client_message(message, header, lead)
        elif header in (WORKER_02, WORKER_01):
            self._worker_message(message, header, lead)
        else:
            message.pos = start
            return False
        return True

    def lost(self) -> bool:
        if self.worker is not None:
            self.worker.leave("connection lost")
        return self.client is not None and self.client.lost()

    def reattach(self, link: PeerConnection) -> None:
        self.link = link
        self.worker = None  # it left with its connection
        if self.client is not None:
            self.client.reattach(link)

    def abandon(self) -> None:
        if self.client is not None:
            self.client.leave()

    def is_worker(self) -> bool:
        return self.worker is not None and self.worker.core is not None

    def set_deaf(self, reading_paused: bool) -> None:
        if self.worker is not None and self.worker.core is not None:
            self.worker.core.set_deaf(reading_paused)

    def _client_message(self, message: Message, header: bytes, lead: bool) -> None:
        form: ClientForm
        if header == CLIENT_01:
            if not lead:
                return self.link.complain("MDP/0.1 request without the empty frame before its header")
            form = C_01
        else:
            command = message.take()
            if command == b"\x01":
                form = C_02_REQ if lead else C_02
            elif command == b"\x02" and lead:
                form = C_TOMO
            else:
                return self.link.complain(f"MDP client command {shown(command)} is not REQUEST")
        service = message.take()
        body = message.rest()
        if not service or not body:
            # RFC 18: REQUEST has 4 or more frames, a name and a body among them.
            return self.link.complain("MDP REQUEST without a service name or without a body")
        client = self.client
        if client is None or client.form is not form:
            if client is not None:
                client.leave()
            client = MdpClient(self, form)
            self.client = client
        client.remember(service)
        self.broker.submit(client.core, service, body, b"")
        return None

    def _worker_message(self, message: Message, header: bytes, lead: bool) -> None:
        form: WorkerForm
        if header == WORKER_01:
            if not lead:
                return self.link.complain("MDP/0.1 command without the empty frame before its header")
            form = W_01
        else:
            form = W_TOMO if lead else W_02
        worker = self.worker
        if worker is None or worker.form is not form:
            if worker is not None:
                worker.leave("speaks another form now")
            worker = MdpWorker(self, form)
            self.worker = worker
        worker.command(message)
        return None


class MdpClient(ClientBase):
    """An MDP client."""

    def __init__(self, session: MdpSession, form: ClientForm, resumed: bool = False) -> None:
        self._resumed = resumed
        super().__init__(session, form.name)
        self.core.form = form.variant
        self.form = form
        self.session = session
        self.usual_service = b""  # of the last request
        self._named = b""  # the service whose answers' heads are ready
        self._final_head = b""
        self._partial_head = b""

    def resumes(self) -> bool:
        return self._resumed

    def remember(self, service: bytes) -> None:
        """Expect more requests for this service. A body always follows, so every frame of the head has MORE."""
        self.usual_service = service
        self.session.answer_next = False
        usual = self.form.request_head + frame(service, True) if len(service) < 256 else b""
        self.link.expect(self.session, usual)

    def partial(self, job: Job, body: bytes) -> None:
        if self.form.partial_head is not None:
            self._name(job.asked)
            self.link.answer(self._partial_head + (body or EMPTY_BODY))

    def final(self, job: Job, body: bytes) -> None:
        name = job.asked
        if name is not self._named:
            self._name(name)
        self.link.answer(self._final_head + (body or EMPTY_BODY))

    def _name(self, service: bytes) -> None:
        """Prepare the heads of this service's answers."""
        form = self.form
        tail = frame(service, True) if form.names_service else b""
        self._named = service
        self._final_head = form.final_head + tail
        if form.partial_head is not None:
            self._partial_head = form.partial_head + tail


class MdpWorker(WorkerPort):
    """An MDP worker: unregistered (`core` is None) until READY, and again after any DISCONNECT."""

    def __init__(self, session: MdpSession, form: WorkerForm) -> None:
        self.session = session
        self.broker = session.broker
        self.link = session.link
        self.form = form
        self.core: Worker | None = None
        self._over = (
            False  # DISCONNECT was said, by either side: nothing but a new READY is answered after it
        )
        self._token = b""
        self._native = session.link.native
        self._request_head = form.request_head + TOKEN_FRAME
        self._final_head = form.final_head + TOKEN_FRAME

    def dispatch(self, job: Job) -> None:
        token = job.token
        self._token = token
        self.session.answer_next = True
        self.link.expect(self.session, self._final_head + token + DELIMITER)
        self.link.send(self._request_head + token + DELIMITER + (job.body or EMPTY_BODY))

    def answered(self, body: bytes) -> None:
        """The FINAL that was expected."""
        core = self.core
        if core is None:  # it left while its answer was on the way
            return
        self._expect_nothing()
        if self._native and body.startswith(native_failure.MARK_HEAD):
            failure = native_failure.from_worker(body)
            if failure is not None:
                self.broker.fail(core, self._token, failure)
                return
        self.broker.final(core, self._token, body)

    def beat(self) -> None:
        self.link.send(self.form.heartbeat_message)

    def dismiss(self, reason: str) -> None:
        """RFC 18 §Opening and Closing: the broker's DISCONNECT needs no reason; nothing more follows."""
        self.core = None
        self._expect_nothing()
        self._disconnect()

    def leave(self, reason: str) -> None:
        """Gone, nothing more is sent to it."""
        core = self.core
        self.core = None
        self._expect_nothing()
        if core is not None:
            self.broker.leave(core, reason)

    def command(self, message: Message) -> None:
        """Any command but the expected FINAL."""
        form = self.form
        command = message.take()
        if command == form.disconnect:
            # RFC 18 §Opening and Closing: may come at any time, even before READY; send nothing more.
            self.leave("said goodbye")
            self._over = True
        elif command == form.ready:
            self._ready(message)
        elif self._over:
            self.link.complain("an MDP worker command after DISCONNECT")
        elif command == form.heartbeat:
            if self.core is None:
                self._unexpected("HEARTBEAT before READY")
            else:
                self.broker.seen(self.core)
        elif command == form.final or (command == form.partial and command is not None):
            self._answer(message, command == form.final)
        else:
            self._invalid(f"MDP worker command {shown(command)} is unknown")

    def _ready(self, message: Message) -> None:
        service = message.take()
        if not service or message.take() is not None:
            return self._invalid("MDP READY without exactly one service name")
        if self.core is not None:
            # RFC 18 §Opening and Closing: one READY per conversation.
            return self._unexpected("READY twice")
        core = Worker(self.broker, self.link.name("mdp"), self.form.name, self, self.session.context.beat)
        core.anonymous = not self.link.named
        self.core = core
        self._over = False
        if not self.broker.register(core, service):
            self.core = None
            self._unexpected(f"READY for {shown(service)}, a name that is not for workers")
        return None

    def _answer(self, message: Message, final: bool) -> None:
        token = message.take()
        delimiter = message.take()
        body = message.rest()
        if token is None or delimiter != b"" or not body:
            # RFC 18: precisely one client address frame, an empty frame, then the body.
            return self._invalid("MDP answer without client address, empty frame and body")
        core = self.core
        if core is None:
            return self._unexpected("an answer before READY")
        if final and token == self._token and token in core.running:
            return self.answered(body)
        known = self.broker.final(core, token, body) if final else self.broker.partial(core, token, body)
        if known != ANSWERED and known != LATE:
            self._unexpected("an answer to a request it was not given")
        return None

    def _unexpected(self, reason: str) -> None:
        """RFC 18: a valid but unexpected command is answered with DISCONNECT and nothing after it."""
        self.link.complain(reason)
        self.leave(reason)
        self._disconnect()

    def _invalid(self, reason: str) -> None:
        """RFC 18: an invalid message is dropped and its sender treated as invalid. A registered worker is told, so
        that it can start anew; its job goes to another."""
        self.link.complain(reason)
        if self.core is not None:
            self.leave(reason)
            self._disconnect()

    def _expect_nothing(self) -> None:
        if self.session.answer_next:
            self.session.answer_next = False
            self.link.expect(self.session, b"")

    def _disconnect(self) -> None:
        self._over = True
        self.link.send(self.form.disconnect_message)


def resume_mdp(context: Context, link: PeerConnection, dialect: str, variant: str) -> Session:
    """For a client that has jobs of before the broker's restart: it waits for their answers in the form it spoke."""
    session = MdpSession(context, link)
    for form in CLIENT_FORMS:
        if form.name == dialect and form.variant == variant:
            session.client = MdpClient(session, form, resumed=True)
    return session
