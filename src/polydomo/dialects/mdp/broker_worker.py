"""MDP workers on the broker's side."""

from __future__ import annotations

from polydomo.core.broker import ANSWERED, LATE
from polydomo.core.model import Job
from polydomo.dialects import native_failure
from polydomo.dialects.mdp.messages import TOKEN_FRAME, WorkerForm
from polydomo.dialects.session import Session
from polydomo.dialects.worker_base import WorkerBase
from polydomo.wire.frames import DELIMITER, EMPTY_BODY, Message, frame, shown


class MdpWorker(WorkerBase):
    """A worker that speaks one form of MDP, registered between READY and DISCONNECT."""

    def __init__(self, session: Session, form: WorkerForm) -> None:
        super().__init__(session)
        self.form = form
        self.final_expected = False  # the link expects the FINAL of the job `_token`
        self._closed = False  # after a DISCONNECT of either side, when only READY is valid
        self._token = b""
        self._native = session.link.native
        self._request_head = form.request_head + TOKEN_FRAME
        self._final_head = form.final_head + TOKEN_FRAME

    def dispatch(self, job: Job) -> None:
        token = job.token
        self._token = token
        self.final_expected = True
        link = self.link
        if link.session is self.session:
            link.expected = self._final_head + token + DELIMITER  # `expect` without its call
        link.send(self._request_head + token + DELIMITER + (job.body or EMPTY_BODY))

    def heartbeat(self) -> None:
        self.link.send(self.form.heartbeat_message)

    def reset(self) -> None:
        self.core = None
        self._expect_nothing()

    def disconnect(self, reason: str) -> None:
        """Send DISCONNECT. It has no place for a reason (RFC 18 §Opening and Closing a Connection), so only our own SDK
        is told one."""
        self._closed = True
        if self._native:
            self.link.send(self.form.disconnect_head + frame(reason.encode()))
        else:
            self.link.send(self.form.disconnect_message)

    def receive_final(self, body: bytes) -> None:
        """Process the expected FINAL."""
        core = self.core
        if core is None:  # the worker left while its reply was on the way
            return
        if self.final_expected:
            self._expect_nothing()
        if self._native and body.startswith(native_failure.MARK_HEAD):
            failure = native_failure.from_worker(body)
            if failure is not None:
                self.broker.fail(core, self._token, failure)
                return
        self.broker.final(core, self._token, body)

    def receive(self, message: Message) -> None:
        """Process any command but the expected FINAL; the message is read up to the command."""
        form = self.form
        command = message.take()
        if command == form.disconnect:
            # RFC 18 §Opening and Closing: may come at any time, even before READY; send nothing more.
            self.leave("sent DISCONNECT")
            self._closed = True
        elif command == form.ready:
            self._ready(message)
        elif self._closed:
            self.link.report_violation("MDP worker command after DISCONNECT")
        elif command == form.heartbeat:
            if self.core is None:
                self.reject_unexpected("MDP HEARTBEAT before READY")
            else:
                self.broker.seen(self.core)
        elif command == form.final or (command == form.partial and command is not None):
            self._reply(message, command == form.final)
        else:
            self.reject_invalid(f"MDP worker command {shown(command)} is unknown")

    def _ready(self, message: Message) -> None:
        service = message.take()
        if not service or message.take() is not None:
            return self.reject_invalid("MDP READY without exactly one service name")
        if self.core is not None:
            # RFC 18 §Opening and Closing: one READY per conversation.
            return self.reject_unexpected("MDP READY from a registered worker")
        link, beat = self.link, self.session.context.beat
        core = self.make_core(link.name("mdp"), self.form.name, not link.named, beat)
        self.core = core
        self._closed = False
        if not self.broker.register(core, service):
            self.core = None
            self.reject_unexpected(
                f"MDP READY for {shown(service)}, {self.broker.why_refused(core, service)}"
            )
        return None

    def _reply(self, message: Message, final: bool) -> None:
        token = message.take()
        delimiter = message.take()
        body = message.rest()
        if token is None or delimiter != b"" or not body:
            # RFC 18: precisely one client address frame, an empty frame, then the body.
            return self.reject_invalid("MDP reply without client address, empty frame and body")
        core = self.core
        if core is None:
            return self.reject_unexpected("MDP reply before READY")
        if final and token == self._token and token in core.running:
            return self.receive_final(body)
        known = self.broker.final(core, token, body) if final else self.broker.partial(core, token, body)
        if known != ANSWERED and known != LATE:
            self.reject_unexpected("MDP reply to a request that the worker was not given")
        return None

    def _expect_nothing(self) -> None:
        if self.final_expected:
            self.final_expected = False
            self.link.expect(self.session, b"")
