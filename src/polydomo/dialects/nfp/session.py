"""The broker's side of NFP: a session on a connection, in the specification's form and in norfab's (messages.py).

Each message says in which form its sender speaks, and everybody is answered in their own. Clients are in clients.py
and kinds.py, workers in workers.py; a connection that plays both is served as both.

Two shortcuts carry nearly all traffic: a worker with one job can send only one thing that matters, RESPONSE 200 with
that job's token, and a client mostly asks what it asked last; both are found by comparing bytes.
"""

from __future__ import annotations

import msgspec

from polydomo._version import __version__
from polydomo.core.registry import SERVICE_NAME_MAX
from polydomo.dialects.nfp import json_bodies
from polydomo.dialects.nfp.broker_client import NfpClient
from polydomo.dialects.nfp.broker_client_variants import NorfabClient, PlainClient, PushClient
from polydomo.dialects.nfp.broker_worker import NfpWorker
from polydomo.dialects.nfp.messages import (
    BROKER,
    CLIENT,
    HEADERS,
    NORFAB,
    OPEN,
    UUID_MAX,
    WORKER,
    Form,
    read_command,
)
from polydomo.dialects.nfp.worker_info import good_name
from polydomo.dialects.session import Context, PeerConnection, Session
from polydomo.wire.frames import Message, shown


class NfpSession(Session):
    """One NFP peer."""

    def __init__(self, context: Context, link: PeerConnection) -> None:
        super().__init__(context, link)
        self.client: NfpClient | None = None
        self.worker: NfpWorker | None = None
        self.answer_next = False  # the link was told to expect the worker's answer

    def receive_expected(self, body: bytes) -> None:
        if self.worker is not None:
            self.worker.answered(body)

    def receive(self, message: Message) -> bool:
        start = message.pos
        client = self.client
        if client is not None and client.usual and message.data.startswith(client.usual, start):
            message.pos = start + len(client.usual)
            client.post_again(message)
            return True
        worker = self.worker
        if (
            worker is not None
            and message.data.startswith(worker.usual, start)
            and worker.usual_answer(message)
        ):
            return True
        lead = message.take()
        header = message.take() if lead == b"" else lead
        if header not in HEADERS:
            message.pos = start
            return False
        if lead:
            self.link.complain("an NFP message without the empty frame before its header")
            return True
        word = message.take()
        known = read_command(word)
        if known is None:
            self._nonsense(header, word)
        elif header == CLIENT:
            self._client_in(known[1]).command(known[0], message)
        else:
            self._worker_in(known[1]).command(known[0], message)
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

    def greeting(self) -> bytes:
        """The body of our OPEN."""
        beat = self.context.beat
        return msgspec.json.encode(
            {
                "events": self.context.events,
                "broker": self.context.broker_name,
                "version": __version__,
                "keepalive_ms": round(beat.interval * 1000),
                "liveness": beat.liveness,
                "limits": {
                    "credit": self.context.credit_max,
                    "service_bytes": SERVICE_NAME_MAX,
                    "uuid_bytes": UUID_MAX,
                },
            }
        )

    def open_client(self, client: NfpClient, body: bytes) -> None:
        """A client's OPEN: answered, and it may ask to be told things unasked."""
        members = json_bodies.object_in(body) if body else None
        push = members is not None and json_bodies.member(members, "push") is True
        if not client.form.norfab and push != isinstance(client, PushClient):
            client.leave()
            client = PushClient(self, client.form) if push else PlainClient(self, client.form)
            self.client = client
        name = None if members is None else json_bodies.member(members, "name")
        if isinstance(name, str) and good_name(name.encode()) and not self.link.named:
            client.core.name = name.encode()  # for people; a socket's own identity says more
        self.link.answer(client.form.bare(BROKER, OPEN, self.greeting()))

    def _client_in(self, form: Form) -> NfpClient:
        client = self.client
        if client is None or client.form is not form:
            if client is not None:
                client.leave()
            client = NorfabClient(self, form) if form.norfab else PlainClient(self, form)
            self.client = client
        return client

    def _worker_in(self, form: Form) -> NfpWorker:
        worker = self.worker
        if worker is None or worker.form is not form:
            if worker is not None:
                worker.leave("speaks another form now")
            worker = NfpWorker(self, form)
            self.worker = worker
        return worker

    def _nonsense(self, header: bytes | None, word: bytes | None) -> None:
        reason = f"NFP command {shown(word)} is unknown"
        if header == WORKER and self.worker is not None:
            self.worker.invalid(reason)
        else:
            self.link.complain(reason)


def resume_norfab(context: Context, link: PeerConnection, dialect: str, variant: str) -> Session:
    """For a client of norfab's that has jobs of before the broker's restart: it waits for what it was promised, and
    asks for nothing before it has heard of the job."""
    session = NfpSession(context, link)
    session.client = NorfabClient(session, NORFAB)
    return session
