"""NFP clients, as the broker sees them: what they ask, which is the same for all kinds of them (see kinds.py).

A job's envelope is its UUID as a frame, the command that asked for it as one byte, and the target as it was written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polydomo.core.gather import Piece, unpack
from polydomo.core.job import DELAYED, QUEUE_FULL, STATES, STORING, WAITING, Failure, Job
from polydomo.core.registry import RESERVED
from polydomo.core.result_history import JobResult
from polydomo.core.targets import Target
from polydomo.dialects import targets
from polydomo.dialects.client_base import ClientBase
from polydomo.dialects.nfp import json_bodies
from polydomo.dialects.nfp.broker_worker import NfpWorker
from polydomo.dialects.nfp.messages import (
    ACCEPTED,
    BROKER,
    CLIENT,
    COMMANDS,
    DELETE,
    DISCONNECT,
    ERROR,
    GET,
    MMI,
    OK,
    OPEN,
    PENDING,
    POST,
    PUT,
    RESPONSE,
    UNKNOWN,
    Form,
    good_uuid,
)
from polydomo.dialects.nfp.worker_queries import SILENT, WorkerQuery
from polydomo.wire.frames import EMPTY_BODY, Message, frame, head, shown

if TYPE_CHECKING:
    from polydomo.dialects.nfp.session import NfpSession

# The service whose requests go to workers' own management.
WORKERS: Final = b"mmi.service.worker"

# How many questions to workers one client may have under way: each may go to very many of them.
QUESTIONS: Final = 100

_BAD_REQUEST: Final = "bad-request"
_ABOUT_JOBS: Final = (POST, GET, DELETE, PUT, MMI)


class NfpClient(ClientBase):
    """What all kinds have in common."""

    def __init__(self, session: NfpSession, form: Form) -> None:
        super().__init__(session, form.name)
        self.session = session
        self.form = form
        self.durable = session.context.nfp_durable
        self.usual = b""  # how its last POST began, up to the UUID, as wire bytes
        self._service = b""  # of that POST
        self._written = b""  # its target, as it was written
        self._target: Target | None = None
        self._post_word = head(b"", CLIENT, form.words[POST])
        self._named = b""  # the service whose answers' head is ready
        self._head = b""
        self.questions = 0  # to workers, unanswered
        self._full = False  # it has too much under way, and is told so

    # What it asks

    def post_again(self, message: Message) -> None:
        """A POST that begins as the last one did; the message stands behind that."""
        uuid = message.take()
        body = message.rest()
        if uuid is None or not body or not good_uuid(uuid):
            self._malformed(POST, self._service, uuid, body)
        else:
            self._submit(self._service, self._written, self._target, uuid, body)

    def command(self, code: int, message: Message) -> None:
        """Any message of a client."""
        if code == OPEN:
            self._open(message)
        elif code == DISCONNECT:
            pass  # NFP has no such command for clients, norfab's list of commands has; there is nothing to end
        elif code not in _ABOUT_JOBS:
            self.link.complain(f"NFP command {COMMANDS[code]} is not a client's")
        else:
            service = message.take()
            target = message.take()
            uuid = message.take()
            body = message.rest()
            if not service or target is None or not uuid or not good_uuid(uuid) or not body:
                self._malformed(code, service, uuid, body)
            elif service == WORKERS:
                self._ask_workers(code, service, target, uuid, body)
            elif service.startswith(RESERVED) and code in (POST, GET, MMI):
                self.broker.submit(self.core, service, body, _envelope(uuid, code, target))
            elif code == POST:
                self._post(service, target, uuid, body)
            elif code == GET:
                self._get(service, target, uuid, body)
            elif code == DELETE:
                self._delete(service, uuid)
            elif code == PUT:
                self._put(service, target, uuid, body)
            else:
                self._ask_workers(code, service, target, uuid, body)

    # What it is told

    def relayed(self, relay: WorkerQuery) -> None:
        """What workers answered to a question."""
        if relay.asked == MMI:
            self._managed(relay)
        elif not relay.pieces:
            status = PENDING if relay.running else UNKNOWN
            self._unknown(relay.command, relay.service, relay.uuid, status)
        else:
            self._answer(relay.command, relay.service, relay.uuid, OK, self._found(relay))

    # How it is told

    def _tell(self, job: Job, status: bytes, body: bytes) -> None:
        """Something about one of its jobs."""
        envelope = job.envelope
        end = 2 + envelope[1]
        if envelope[end] == MMI:
            start = self.form.head(BROKER, MMI) + frame(job.asked, True)
        else:
            if job.asked is not self._named:
                self._named = job.asked
                self._head = self.form.to_client_response + frame(job.asked, True)
            start = self._head
        self.link.answer(start + envelope[:end] + b"\x01\x03" + status + (body or EMPTY_BODY))

    def _tell_failure(self, job: Job, failure: Failure) -> None:
        uuid = uuid_of(job)
        said = json_bodies.trouble(uuid, job.asked, failure.message, failure.reason, failure.detail)
        self._tell(job, json_bodies.status_for(failure), frame(said))

    def _answer(self, code: int, service: bytes, uuid: bytes, status: bytes, body: bytes) -> None:
        """The RESPONSE to a command, or MMI to MMI."""
        word = self.form.head(BROKER, MMI if code == MMI else RESPONSE)
        self.link.answer(word + head(service, uuid, status) + (body or EMPTY_BODY))

    def _refuse(
        self, code: int, service: bytes, uuid: bytes, message: str, reason: str = _BAD_REQUEST
    ) -> None:
        self._answer(code, service, uuid, UNKNOWN, frame(json_bodies.trouble(uuid, service, message, reason)))

    def _told(self, job: Job, status: bytes, names: list[bytes] | None) -> bytes:
        return json_bodies.told(uuid_of(job), job.asked, target_of(job), status, names)

    def _shape(self, body: bytes, gathered: bool) -> bytes:
        """A result as this kind of client knows it."""
        return frame(json_bodies.merged(unpack(body))) if gathered else body

    def _found(self, relay: WorkerQuery) -> bytes:
        """Results that workers had kept."""
        piece = relay.pieces[0]
        if relay.single and piece.body is not None:
            return piece.body
        return frame(json_bodies.merged(relay.pieces))

    # Inside

    def _open(self, message: Message) -> None:
        body = message.take()
        if body is None or message.take() is not None:
            return self.link.complain("NFP OPEN without exactly one body")
        self.session.open_client(self, body)
        return None

    def _malformed(self, code: int, service: bytes | None, uuid: bytes | None, body: bytes) -> None:
        """Dropped; with a word to the client if it can be told which message it was."""
        reason = f"NFP {COMMANDS[code]} without service, target, UUID and body"
        if uuid and not good_uuid(uuid):
            reason = f"NFP {COMMANDS[code]} with the UUID {shown(uuid)}: a printable text of up to 200 bytes"
        self.link.complain(reason)
        if uuid and good_uuid(uuid):
            self._refuse(code, service or b"", uuid, reason)

    def _post(self, service: bytes, target: bytes, uuid: bytes, body: bytes) -> None:
        try:
            found = targets.parse(target, service)
        except ValueError as error:
            return self._refuse(POST, service, uuid, str(error))
        if len(service) < 256 and len(target) < 256:
            self._service = service
            self._written = target
            self._target = found
            self.usual = self._post_word + head(service, target)
        self._submit(service, target, found, uuid, body)
        return None

    def _submit(
        self, service: bytes, written: bytes, target: Target | None, uuid: bytes, body: bytes
    ) -> None:
        if self._full:
            message = f"{self.core.jobs} jobs of this client are under way; no more until some have ended"
            self._answer(
                POST, service, uuid, ERROR, frame(json_bodies.trouble(uuid, service, message, QUEUE_FULL))
            )
            return None
        try:
            options = json_bodies.options_in(body, self.durable)
        except ValueError as error:
            return self._refuse(POST, service, uuid, str(error))
        options.uid = uuid.decode()
        options.target = target
        self.broker.submit(self.core, service, body, _envelope(uuid, POST, written), options)
        return None

    def _get(self, service: bytes, target: bytes, uuid: bytes, body: bytes) -> None:
        """NFP §GET: a result, by whoever has the UUID."""
        job = self.broker.find(uuid.decode())
        if job is not None:
            self._still(job, service, target, uuid)
            return

        def then(ended: JobResult | None) -> None:
            if self.core.gone:
                return
            if ended is None:
                self._ask_about(service, target, uuid, body)
            else:
                self._recalled(ended, service, target, uuid)

        self.broker.recall(uuid.decode(), then)

    def _still(self, job: Job, service: bytes, target: bytes, uuid: bytes) -> None:
        """Not ended."""
        names = None if job.extra is None else job.extra.names
        said = json_bodies.told(uuid, service, target, state_of(job), names)
        self._answer(GET, service, uuid, PENDING, frame(said))

    def _recalled(self, ended: JobResult, service: bytes, target: bytes, uuid: bytes) -> None:
        """Ended."""
        failure = ended.failure
        if failure is not None:
            said = json_bodies.trouble(uuid, service, failure.message, failure.reason, failure.detail)
            self._answer(GET, service, uuid, json_bodies.status_for(failure), frame(said))
        else:
            self._answer(GET, service, uuid, OK, self._shape(ended.body or EMPTY_BODY, ended.gathered))

    def _ask_about(self, service: bytes, target: bytes, uuid: bytes, body: bytes) -> None:
        """A job the broker does not know: one of the workers may."""
        if not self._relay(WorkerQuery(self, GET, GET, service, uuid, target), body):
            self._unknown(GET, service, uuid, UNKNOWN)

    def _unknown(self, code: int, service: bytes, uuid: bytes, status: bytes) -> None:
        if status == PENDING:
            self._answer(
                code, service, uuid, status, frame(json_bodies.told(uuid, service, b"", b"PENDING", None))
            )
        else:
            said = json_bodies.trouble(uuid, service, "there is no job with this UUID", "unknown")
            self._answer(code, service, uuid, status, frame(said))

    def _delete(self, service: bytes, uuid: bytes) -> None:
        """NFP §DELETE: a queued job is dropped, a running one's worker is told."""
        job = self.broker.find(uuid.decode())
        if job is not None and self.broker.lifecycle.cancel(job):

            def cancelled() -> None:
                if not self.core.gone:
                    said = json_bodies.told(uuid, service, b"", b"CANCELLED", None)
                    self._answer(DELETE, service, uuid, OK, frame(said))

            self.broker.lifecycle.when_ended(job, cancelled)
        else:
            self._refuse(DELETE, service, uuid, "no job with this UUID can be cancelled", "unknown")

    def _put(self, service: bytes, target: bytes, uuid: bytes, body: bytes) -> None:
        """Something more for a running job."""
        job = self.broker.find(uuid.decode())
        if job is not None and self.broker.put(job, targets.names_in(target), body):
            said = json_bodies.told(uuid, service, target, b"ACCEPTED", None)
            self._answer(PUT, service, uuid, ACCEPTED, frame(said))
        else:
            message = "no worker that has a job with this UUID can take anything more"
            self._refuse(PUT, service, uuid, message, "unknown")

    def _ask_workers(self, code: int, service: bytes, target: bytes, uuid: bytes, body: bytes) -> None:
        """Workers' own management."""
        if not self._relay(WorkerQuery(self, code, MMI, service, uuid, target), body):
            self._refuse(code, service, uuid, "there are no such workers", "unknown")

    def _relay(self, relay: WorkerQuery, body: bytes) -> bool:
        """Ask workers. False: there are none."""
        workers = self._workers(relay)
        if not workers:
            return False
        if self.questions < QUESTIONS:
            relay.start(workers, body)
        else:
            message = f"{self.questions} questions of this client to workers are not answered yet"
            said = json_bodies.trouble(relay.uuid, relay.service, message, QUEUE_FULL)
            self._answer(relay.command, relay.service, relay.uuid, ERROR, frame(said))
        return True

    def _managed(self, relay: WorkerQuery) -> None:
        silent = [Piece(name, frame(SILENT), "", "", b"") for name in relay.silent]
        # Not in the order in which they happened to answer.
        pieces = sorted(relay.pieces + silent, key=_name_of)
        self._answer(relay.command, relay.service, relay.uuid, OK, frame(json_bodies.merged(pieces)))

    def _workers(self, relay: WorkerQuery) -> list[NfpWorker]:
        """Whom a question is for: NFP workers of its service, or of any for `mmi.service.worker` and `all`."""
        try:
            target = targets.parse(relay.target)
        except ValueError:
            return []
        found: list[NfpWorker] = []
        for worker in self.broker.workers:
            port = worker.port
            if not isinstance(port, NfpWorker) or (
                relay.service not in (WORKERS, targets.EVERY_SERVICE) and relay.service != port.service
            ):
                continue
            if target is None or not target.names or worker.name in target.names:
                found.append(port)
        relay.single = target is None or target.single
        return found[:1] if target is None and relay.asked == MMI else found


def _name_of(piece: Piece) -> bytes:
    return piece.name


def _envelope(uuid: bytes, code: int, target: bytes) -> bytes:
    return bytes((1, len(uuid))) + uuid + bytes((code,)) + target


def uuid_frame(job: Job) -> bytes:
    return job.envelope[: 2 + job.envelope[1]]


def uuid_of(job: Job) -> bytes:
    return job.envelope[2 : 2 + job.envelope[1]]


def target_of(job: Job) -> bytes:
    return job.envelope[3 + job.envelope[1] :]


def state_of(job: Job) -> bytes:
    return b"PENDING" if job.state in (WAITING, DELAYED, STORING) else STATES[job.state].upper().encode()
