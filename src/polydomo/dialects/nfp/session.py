"""The broker's NFP session, in the specification's form and in norfab's (see messages.py).

Each message shows which form its sender speaks, and each peer is replied to in its own.

Two shortcuts carry nearly all traffic: a worker with one job can send only one message that matters, RESPONSE 200 with
that job's token, and a client mostly repeats the head of its last POST. Both are recognised by comparing bytes.
"""

from __future__ import annotations

from polydomo.dialects.client_base import ClientBase
from polydomo.dialects.nfp import json_bodies
from polydomo.dialects.nfp.broker_client import NfpClient
from polydomo.dialects.nfp.broker_worker import NfpWorker
from polydomo.dialects.nfp.messages import (
    BROKER,
    HEADERS,
    NORFAB,
    OPEN,
    WORKER,
    Form,
    read_command,
)
from polydomo.dialects.nfp.worker_info import is_valid_name
from polydomo.dialects.peer_session import PeerSession
from polydomo.dialects.session import PeerConnection, Session, SessionContext
from polydomo.wire.frames import Message, shown


class NfpSession(PeerSession[ClientBase, NfpWorker]):
    """One NFP peer: a client, a worker, or both."""

    def __init__(self, context: SessionContext, link: PeerConnection) -> None:
        super().__init__(context, link)
        self.commands: NfpClient | None = None  # reads the commands of `client`

    def receive_expected(self, body: bytes) -> None:
        if self.worker is not None:
            self.worker.receive_expected(body)

    def receive(self, message: Message) -> bool:
        start = message.pos
        commands = self.commands
        if commands is not None and commands.post_head and message.data.startswith(commands.post_head, start):
            message.pos = start + len(commands.post_head)
            commands.receive_post(message)
            return True
        worker = self.worker
        if (
            worker is not None
            and message.data.startswith(worker.response_head, start)
            and worker.receive_result(message)
        ):
            return True
        lead = message.take()
        header = message.take() if lead == b"" else lead
        if header not in HEADERS:
            message.pos = start
            return False
        if lead:
            self.link.report_violation("NFP message without the empty frame before its header")
            return True
        word = message.take()
        known = read_command(word)
        if known is None:
            reason = f"NFP command {shown(word)} is unknown"
            if header == WORKER and self.worker is not None:
                self.worker.reject_invalid(reason)
            else:
                self.link.report_violation(reason)
        elif header == WORKER:
            self._worker_in(known[1]).receive(known[0], message)
        elif known[0] == OPEN:
            self._open_client(known[1], message)
        else:
            self._client_in(known[1]).receive(known[0], message)
        return True

    def reattach(self, link: PeerConnection) -> None:
        if self.commands is not None:
            self.commands.replies.link = link
        super().reattach(link)

    def replace_client(self, form: Form, push: bool = False) -> NfpClient:
        """Begin with a new client, in this form."""
        if self.client is not None:
            self.client.leave()
        self.commands = NfpClient(self, form, push)
        self.client = self.commands.variant
        return self.commands

    def _open_client(self, form: Form, message: Message) -> None:
        """Reply to a client's OPEN, in which it may choose to be told of its jobs as they proceed (push)."""
        body = message.take()
        if body is None or message.take() is not None:
            return self.link.report_violation("NFP OPEN without exactly one body")
        members = json_bodies.object_in(body) if body else None
        push = members is not None and json_bodies.member(members, "push") is True and not form.norfab
        client = self._client_in(form)
        if push is not client.push:
            client = self.replace_client(form, push)
        name = None if members is None else json_bodies.member(members, "name")
        if isinstance(name, str) and is_valid_name(name.encode()) and not self.link.named:
            client.core.name = name.encode()  # for display; a socket's own identity takes precedence
        self.link.answer(form.short(BROKER, OPEN, json_bodies.greeting(self.context)))
        return None

    def _client_in(self, form: Form) -> NfpClient:
        commands = self.commands
        if commands is None or commands.form is not form:
            commands = self.replace_client(form)
        return commands

    def _worker_in(self, form: Form) -> NfpWorker:
        worker = self.worker
        if worker is None or worker.form is not form:
            if worker is not None:
                worker.leave("changed to another form of NFP")
            worker = NfpWorker(self, form)
            self.worker = worker
        return worker


def resume_norfab(context: SessionContext, link: PeerConnection, dialect: str, variant: str) -> Session:
    """Return a session for a norfab client with jobs from before the broker's restart, which waits for their replies
    and sends nothing before."""
    session = NfpSession(context, link)
    session.replace_client(NORFAB)
    return session
