"""DCP workers on the broker's side."""

from __future__ import annotations

from polydomo.core.model import Job, Worker
from polydomo.dialects import native_failure
from polydomo.dialects.dcp.messages import DIALECT, Width, close_metadata
from polydomo.dialects.session import Session
from polydomo.dialects.worker_base import WorkerBase
from polydomo.wire.frames import DELIMITER, frame


class DcpWorker(WorkerBase):
    """A peer that registers services. Workers get the attempt's token as the client's address. DCP has no DISCONNECT:
    the next ping of a worker that was removed is answered with a reconnect."""

    def __init__(self, session: Session, width: Width) -> None:
        super().__init__(session)
        self.width = width
        self._token = b""  # of the job whose reply is expected

    def new_core(self) -> Worker:
        """Return the core's worker for this peer, not registered yet."""
        link = self.link
        core = self.make_core(link.name("dcp"), DIALECT, not link.named, self.session.context.beat)
        if self.link.slots:  # our own SDK announces its slots, and need not ask for each job with a ping
            core.base_credit = core.credit = min(self.link.slots, self.session.context.credit_max)
        return core

    def dispatch(self, job: Job) -> None:
        width = self.width
        metadata = job.envelope if job.client.dialect == DIALECT else b""
        address = b"\x01\x08" + job.token + DELIMITER
        self._token = job.token
        self.link.expect(self.session, width.reply_head + address + metadata + DELIMITER)
        head = width.request_head + frame(job.service.name, True) + address + metadata
        self.link.send(head + close_metadata(job.body))

    def reset(self) -> None:
        self.core = None
        self.link.expect(self.session, b"")

    def receive_expected(self, body: bytes) -> None:
        """Process the reply that was expected."""
        self.link.expect(self.session, b"")
        if self.core is not None:
            self.reply(self.core, self._token, body)

    def reply(self, core: Worker, token: bytes, body: bytes) -> int:
        """Pass a reply to the core and return its status."""
        if self.link.native and body.startswith(native_failure.MARK_HEAD):
            failure = native_failure.from_worker(body)
            if failure is not None:
                return self.broker.fail(core, token, failure)
        return self.broker.final(core, token, body)
