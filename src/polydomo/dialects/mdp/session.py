"""The broker's MDP session, in all forms of the protocol (see messages.py).

Two shortcuts carry nearly all traffic. A worker that holds one job can send only one message that matters: FINAL with
that job's token. The bytes with which such a message begins are prepared at dispatch, and one comparison checks header,
command, token and delimiter at once. A client mostly requests the same service again, so the head of its last request
is expected next. Any message that does not match is checked frame by frame, and only there can anything be refused.
"""

from __future__ import annotations

from polydomo.dialects.mdp import messages
from polydomo.dialects.mdp.broker_client import MdpClient
from polydomo.dialects.mdp.broker_worker import MdpWorker
from polydomo.dialects.mdp.messages import ClientForm, WorkerForm
from polydomo.dialects.peer_session import PeerSession
from polydomo.dialects.session import PeerConnection, Session, SessionContext
from polydomo.wire.frames import Message, shown


class MdpSession(PeerSession[MdpClient, MdpWorker]):
    """One MDP peer: usually a client or a worker, but one connection may be both."""

    def receive_expected(self, body: bytes) -> None:
        worker = self.worker
        client = self.client
        if worker is not None and worker.final_expected:
            worker.final_expected = False
            self.link.expected = b""  # `expect` without its call: this is the connection's first session
            worker.receive_final(body)
        elif client is not None:
            self.broker.submit(client.core, client.last_service, body, b"")

    def receive(self, message: Message) -> bool:
        start = message.pos
        header = message.take()
        lead = header == b""
        if lead:
            header = message.take()
        if header in (messages.CLIENT_02, messages.CLIENT_01):
            self._client_message(message, header, lead)
        elif header in (messages.WORKER_02, messages.WORKER_01):
            self._worker_message(message, header, lead)
        else:
            message.pos = start
            return False
        return True

    def _client_message(self, message: Message, header: bytes, lead: bool) -> None:
        form: ClientForm
        if header == messages.CLIENT_01:
            if not lead:
                return self.link.report_violation("MDP/0.1 request without the empty frame before its header")
            form = messages.C_01
        else:
            command = message.take()
            if command == b"\x01":
                form = messages.C_02_REQ if lead else messages.C_02
            elif command == b"\x02" and lead:
                form = messages.C_TOMO
            else:
                return self.link.report_violation(f"MDP client command {shown(command)} is not REQUEST")
        service = message.take()
        body = message.rest()
        if not service or not body:
            # RFC 18: REQUEST has 4 or more frames, a name and a body among them.
            return self.link.report_violation("MDP REQUEST without a service name or without a body")
        client = self.client
        if client is None or client.form is not form:
            if client is not None:
                client.leave()
            client = MdpClient(self, form)
            self.client = client
        if self.worker is not None:
            self.worker.final_expected = False  # a link expects one message: the next request
        client.expect_request(service)
        self.broker.submit(client.core, service, body, b"")
        return None

    def _worker_message(self, message: Message, header: bytes, lead: bool) -> None:
        form: WorkerForm
        if header == messages.WORKER_01:
            if not lead:
                return self.link.report_violation("MDP/0.1 command without the empty frame before its header")
            form = messages.W_01
        else:
            form = messages.W_TOMO if lead else messages.W_02
        worker = self.worker
        if worker is None or worker.form is not form:
            if worker is not None:
                worker.leave("changed to another form of MDP")
            worker = MdpWorker(self, form)
            self.worker = worker
        worker.receive(message)
        return None


def resume_mdp(context: SessionContext, link: PeerConnection, dialect: str, variant: str) -> Session:
    """Return a session for a client with jobs from before the broker's restart, in the form that it spoke."""
    session = MdpSession(context, link)
    for form in messages.CLIENT_FORMS:
        if form.name == dialect and form.variant == variant:
            session.client = MdpClient(session, form, resumed=True)
    return session
