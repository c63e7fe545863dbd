"""Messages that the broker sends to NFP clients, in the specification's form and in norfab's.

A job's envelope is its UUID as a frame, the command that submitted it as one byte, and the target as it was written.
"""

from __future__ import annotations

from typing import Final

from polydomo.core.failure import Failure
from polydomo.core.model import Job
from polydomo.core.pieces import Piece, unpack
from polydomo.core.result_history import JobResult
from polydomo.core.states import DELAYED, STATES, STORING, WAITING
from polydomo.core.tracked_job import TrackedJob
from polydomo.dialects import targets
from polydomo.dialects.nfp import json_bodies, messages
from polydomo.dialects.nfp.messages import BROKER, OK_FRAME, ClientCommand, Form
from polydomo.dialects.session import PeerConnection
from polydomo.wire.frames import EMPTY_BODY, frame, head

BAD_REQUEST: Final = "bad-request"


class Replies:
    """Messages to one client: about its jobs, and in reply to its commands."""

    def __init__(self, form: Form, link: PeerConnection) -> None:
        self.form = form
        self.link = link
        self._head_service = b""  # service for which `_head` is prepared
        self._head = b""

    # About the client's jobs

    def respond(self, job: Job, status: bytes, body: bytes) -> None:
        """Send a RESPONSE about a job, or MMI if the job was submitted with MMI."""
        envelope = job.envelope
        end = 2 + envelope[1]
        if envelope[end] == messages.MMI:
            start = self.form.head(BROKER, messages.MMI) + frame(job.requested_service, True)
        else:
            if job.requested_service is not self._head_service:
                self._head_service = job.requested_service
                self._head = self.form.to_client_response + frame(job.requested_service, True)
            start = self._head
        self.link.answer(start + envelope[:end] + b"\x01\x03" + status + (body or EMPTY_BODY))

    def respond_accepted(self, job: Job, state: bytes, names: list[bytes] | None) -> None:
        """Send 202 with the job's state and its workers, if they are known."""
        body = json_bodies.job_status(uuid_of(job), job.requested_service, target_of(job), state, names)
        self.respond(job, messages.ACCEPTED, frame(body))

    def respond_failure(self, job: Job, failure: Failure) -> None:
        """Send the status and description of a failure."""
        body = json_bodies.failure_body(uuid_of(job), job.requested_service, failure)
        self.respond(job, json_bodies.failure_status(failure), frame(body))

    def notify(self, start: bytes, job: Job, body: bytes) -> None:
        """Send an EVENT or STREAM about a job; `start` is its prepared head."""
        self.link.answer(start + frame(job.requested_service, True) + uuid_frame(job) + OK_FRAME + body)

    # To the client's commands

    def reply(self, command: ClientCommand, status: bytes, body: bytes) -> None:
        """Send the RESPONSE to a command, or MMI to MMI."""
        word = self.form.head(BROKER, messages.MMI if command.code == messages.MMI else messages.RESPONSE)
        self.link.answer(word + head(command.service, command.uuid, status) + (body or EMPTY_BODY))

    def reply_state(
        self,
        command: ClientCommand,
        status: bytes,
        state: bytes,
        target: bytes = b"",
        names: list[bytes] | None = None,
    ) -> None:
        """Reply with a job's state."""
        body = json_bodies.job_status(command.uuid, command.service, target, state, names)
        self.reply(command, status, frame(body))

    def reply_error(
        self,
        command: ClientCommand,
        message: str,
        reason: str = BAD_REQUEST,
        status: bytes = messages.UNKNOWN,
    ) -> None:
        """Refuse a command, with the reason."""
        body = json_bodies.failure_body(command.uuid, command.service, Failure(reason, message))
        self.reply(command, status, frame(body))

    def reply_unknown(self, command: ClientCommand, status: bytes) -> None:
        """Reply that no job with the command's UUID is known; PENDING: not yet."""
        if status == messages.PENDING:
            self.reply_state(command, status, b"PENDING")
        else:
            self.reply_error(command, "there is no job with this UUID", "unknown", status)

    def reply_running(self, command: ClientCommand, job: Job) -> None:
        """Reply that the job has not ended."""
        names = job.names if isinstance(job, TrackedJob) else None
        self.reply_state(command, messages.PENDING, state_of(job), command.target, names)

    def reply_end(self, command: ClientCommand, ended: JobResult) -> None:
        """Reply with a job's result or failure."""
        failure = ended.failure
        if failure is not None:
            body = json_bodies.failure_body(command.uuid, command.service, failure)
            self.reply(command, json_bodies.failure_status(failure), frame(body))
        else:
            self.reply(command, messages.OK, self.result_body(command, ended))

    def reply_pieces(self, command: ClientCommand, pieces: list[Piece], single: bool) -> None:
        """Reply with results that workers have kept."""
        body = pieces[0].body
        self.reply(
            command, messages.OK, body if single and body is not None else frame(json_bodies.merge(pieces))
        )

    def result_body(self, command: ClientCommand, ended: JobResult) -> bytes:
        """Return a job's result in this form."""
        body = ended.body or EMPTY_BODY
        return merge_gathered(body) if ended.gathered else body


class NorfabReplies(Replies):
    """The same in norfab's form."""

    def reply_running(self, command: ClientCommand, job: Job) -> None:
        body = b'{"uuid":%b,"service":%b,"status":"%b"}' % (
            json_bodies.quote_text(command.uuid),
            json_bodies.quote_name(command.service),
            state_of(job),
        )
        self.reply(command, messages.PENDING, frame(body))

    def reply_pieces(self, command: ClientCommand, pieces: list[Piece], single: bool) -> None:
        self.reply(
            command, messages.OK, frame(json_bodies.norfab_pieces(pieces, command.uuid, command.service))
        )

    def result_body(self, command: ClientCommand, ended: JobResult) -> bytes:
        body = ended.body or EMPTY_BODY
        if ended.gathered:
            return frame(json_bodies.norfab_pieces(unpack(body), command.uuid, command.service))
        names = targets.names_in(command.target)
        name = ended.worker or b"worker"
        called = names[0] if len(names) == 1 else name
        return frame(json_bodies.norfab_result(name, called, body, command.uuid, command.service))


def merge_gathered(body: bytes) -> bytes:
    """Return a gathered result as the specification's clients get it: one JSON object, `{worker: value}`."""
    return frame(json_bodies.merge(unpack(body)))


def make_envelope(uuid: bytes, code: int, target: bytes) -> bytes:
    return bytes((1, len(uuid))) + uuid + bytes((code,)) + target


def uuid_frame(job: Job) -> bytes:
    return job.envelope[: 2 + job.envelope[1]]


def uuid_of(job: Job) -> bytes:
    return job.envelope[2 : 2 + job.envelope[1]]


def target_of(job: Job) -> bytes:
    return job.envelope[3 + job.envelope[1] :]


def state_of(job: Job) -> bytes:
    return b"PENDING" if job.state in (WAITING, DELAYED, STORING) else STATES[job.state].upper().encode()
