"""The broker's DCP session.

Every peer starts as a client; a registration makes it a worker too, for one service per registration. Besides its data
a request carries the client's address, filled in by the broker if it is missing, and metadata parts, which go to the
worker and come back to the client untouched. Workers see a token of the attempt instead of the client's address, so
they can only reply to jobs that they were given; a worker that sends a request with such a token forwards its job.
"""

from __future__ import annotations

from typing import Final

from polydomo.core.broker import STRAY
from polydomo.core.model import Worker
from polydomo.core.tracked_job import Options
from polydomo.dialects.dcp.broker_client import DcpClient
from polydomo.dialects.dcp.broker_worker import DcpWorker
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
    take_metadata,
)
from polydomo.dialects.options import read_json
from polydomo.dialects.peer_session import PeerSession
from polydomo.dialects.session import PeerConnection, Session, SessionContext
from polydomo.wire.frames import Message, frame, shown, split

# Start of a metadata part with options for the broker (dialects/options.py): `polydomo:{"priority": 3}`.
OPTIONS: Final = b"polydomo:{"


class DcpSession(PeerSession[DcpClient, DcpWorker]):
    """One DCP peer. Replies have the type width of the peer's last message."""

    def __init__(self, context: SessionContext, link: PeerConnection, width: Width = ONE_BYTE) -> None:
        super().__init__(context, link)
        self.width = width

    def receive_expected(self, body: bytes) -> None:
        if self.worker is not None:
            self.worker.receive_expected(body)

    def receive(self, message: Message) -> bool:
        start = message.pos
        if message.take() != b"" or message.take() != PROTOCOL:
            message.pos = start
            return False
        known = read_kind(message.take())
        if known is None:
            self.link.report_violation("DCP type frame is neither one byte nor four")
            return True
        kind, width = known
        if width is not self.width:
            self._set_width(width)
        if kind == REQUEST:
            self._request(message)
        elif kind == REPLY:
            self._reply(message)
        elif kind == PING:
            self._ping(message)
        elif kind == REGISTER:
            self._register(message)
        else:
            self.link.report_violation(f"DCP type {kind} is not for a broker")
        return True

    def _set_width(self, width: Width) -> None:
        self.width = width
        if self.client is not None:
            self.client.width = width
        if self.worker is not None:
            self.worker.width = width

    def _registered(self) -> Worker | None:
        """Return the registered worker, if there is one."""
        return None if self.worker is None else self.worker.core

    def _register(self, message: Message) -> None:
        """DCP §Connection: an accepted registration is echoed."""
        service = message.take()
        if service is None or message.take() is not None:
            return self.link.report_violation("DCP registration without exactly one service name")
        worker = self.worker or DcpWorker(self, self.width)
        core = worker.core or worker.new_core()
        if not self.broker.may_register(core, service):
            return self._refuse(service, self.broker.why_refused(core, service))
        worker.core = core
        self.worker = worker
        core.last_seen = self.broker.now
        # The echo comes first, then jobs that have been waiting for such a worker.
        self.link.send(self.width.register_head + frame(service))
        self.broker.register(core, service)
        return None

    def _refuse(self, service: bytes, reason: str) -> None:
        """Do not echo a registration. Our own SDK is told why, in a further frame of the echo."""
        self.link.report_violation(f"DCP registration for {shown(service)}, {reason}")
        if self.link.native:
            self.link.send(self.width.register_head + frame(service, True) + frame(reason.encode()))

    def _ping(self, message: Message) -> None:
        """DCP §Heartbeats: a ping gets a pong; one from a peer that is not registered gets a reconnect."""
        if message.take() is not None:
            return self.link.report_violation("DCP heartbeat with frames after its header")
        core = self._registered()
        if core is None:
            self.link.send(self.width.reconnect)
            return None
        self.link.send(self.width.pong)
        self.broker.seen(core)
        # DCP §Requests & Replies: a busy worker's heartbeat asks for more work.
        if core.running:
            bound = self.context.credit_max
            self.broker.ask_for_more(core, min(self.link.slots or bound, bound))
        return None

    def _request(self, message: Message) -> None:
        service = message.take()
        address = message.take()
        if address and message.take() != b"":
            address = None
        metadata = take_metadata(message)
        if not service or address is None or metadata is None:
            return self.link.report_violation(
                "DCP request without service, address delimiter and metadata delimiter"
            )
        body = message.rest()
        core = self._registered()
        if core is not None:
            # DCP §Heartbeats: any message counts as one; but not as proof that the worker pings while it is busy.
            core.last_seen = self.broker.now
        # A peer may have chosen an identity that looks like the token of a job that it holds.
        if address and (address != self.link.identity or (core is not None and address in core.running)):
            # A worker forwards its job to another service: the address is the token that it was given.
            if core is None or self.broker.forward(core, address, service, body) == STRAY:
                self.link.report_violation("DCP request with the address of another peer")
            return None
        options: Options | None = None
        if OPTIONS in metadata:
            try:
                options = options_in(metadata)
            except ValueError as error:
                return self.link.report_violation(f"DCP request with invalid options: {error}")
        if self.client is None:
            self.client = DcpClient(self, self.width)
        self.broker.submit(self.client.core, service, body, metadata, options)
        return None

    def _reply(self, message: Message) -> None:
        token = message.take()
        if not token or message.take() != b"" or take_metadata(message) is None:
            return self.link.report_violation("DCP reply without client address and metadata delimiter")
        worker = self.worker
        if worker is None or worker.core is None or worker.reply(worker.core, token, message.rest()) == STRAY:
            self.link.report_violation("DCP reply to a request that the worker was not given")
        return None


def resume_dcp(context: SessionContext, link: PeerConnection, dialect: str, variant: str) -> Session:
    """Return a session for a client with jobs from before the broker's restart, in its own type width."""
    width = FOUR_BYTES if variant == FOUR_BYTES.variant else ONE_BYTE
    session = DcpSession(context, link, width)
    session.client = DcpClient(session, width, resumed=True)
    return session


def options_in(metadata: bytes) -> Options | None:
    """Return the job options in a metadata part, if there are any. Raises ValueError."""
    for part in split(metadata):
        if part.startswith(OPTIONS):
            return read_json(part[len(OPTIONS) - 1 :])
    return None
