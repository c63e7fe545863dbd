"""NFP clients on the broker's side: their commands, which are the same for all variants of clients.

What a client is told about its jobs depends on its variant (broker_client_variants.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from polydomo.core.failure import QUEUE_FULL
from polydomo.core.names import printable
from polydomo.core.pieces import Piece
from polydomo.core.principals import CANCEL, OPERATE, READ
from polydomo.core.result_history import JobResult
from polydomo.core.services import RESERVED
from polydomo.core.targets import Target
from polydomo.core.tracked_job import TrackedJob
from polydomo.dialects import targets
from polydomo.dialects.client_base import ClientBase
from polydomo.dialects.nfp import json_bodies, messages
from polydomo.dialects.nfp.broker_client_variants import NorfabClient, PlainClient, PushClient
from polydomo.dialects.nfp.messages import CLIENT, COMMANDS, ClientCommand, Form, is_valid_uuid
from polydomo.dialects.nfp.replies import NorfabReplies, Replies, make_envelope
from polydomo.dialects.nfp.worker_queries import WORKERS, WorkerQuery
from polydomo.dialects.session import Session
from polydomo.wire.frames import Message, frame, head, shown

# Unanswered worker queries per client: each may go to very many workers.
QUERIES_MAX: Final = 100

# Workers that are named in the record of an act.
NAMES_MAX: Final = 20

# Reason of a refusal: the audit log cannot be written.
NOT_RECORDED: Final = "not-recorded"

_NO_REPLY: Final = frame(b'{"error":"does not answer"}')
_JOB_COMMANDS: Final = (messages.POST, messages.GET, messages.DELETE, messages.PUT, messages.MMI)


class NfpClient:
    """A client and its commands. `variant` is the client as the core sees it."""

    def __init__(self, session: Session, form: Form, push: bool = False) -> None:
        self.broker = session.broker
        self.form = form
        self.push = push
        self.replies: Replies
        self.variant: ClientBase
        if form.norfab:
            self.replies = NorfabReplies(form, session.link)
            self.variant = NorfabClient(session, self.replies)
        else:
            self.replies = Replies(form, session.link)
            self.variant = PushClient(session, self.replies) if push else PlainClient(session, self.replies)
        self.core = self.variant.core
        self.post_head = b""  # start of the last POST, up to the UUID, as wire bytes
        self._service = b""  # of that POST
        self._written_target = b""  # of that POST, as it was written
        self._target: Target | None = None
        self._post_word = head(b"", CLIENT, form.words[messages.POST])
        self._refuses = isinstance(self.variant, PlainClient)  # refuse jobs while the core holds the client
        self._durable = session.context.nfp_durable
        self._queries = 0  # unanswered queries to workers

    # From the session

    def receive_post(self, message: Message) -> None:
        """Process a POST that begins with `post_head`; the message is read up to that."""
        uuid = message.take()
        body = message.rest()
        if uuid is None or not body or not is_valid_uuid(uuid):
            self._reject(messages.POST, self._service, uuid)
        else:
            self._submit(self._service, self._written_target, self._target, uuid, body)

    def receive(self, code: int, message: Message) -> None:
        """Process any command but OPEN; the message is read up to the command."""
        if code == messages.DISCONNECT:
            return  # no client command in NFP, but norfab's list has it; there is nothing to end
        if code not in _JOB_COMMANDS:
            self.replies.link.report_violation(f"NFP command {COMMANDS[code]} is not a client's")
            return
        service = message.take()
        target = message.take()
        uuid = message.take()
        body = message.rest()
        if not service or target is None or not uuid or not is_valid_uuid(uuid) or not body:
            self._reject(code, service, uuid)
            return
        command = ClientCommand(code, service, target, uuid)
        if service == WORKERS:
            self._manage_workers(command, body)
        elif service.startswith(RESERVED) and code in (messages.POST, messages.GET, messages.MMI):
            self.broker.submit(self.core, service, body, make_envelope(uuid, code, target))
        elif code == messages.POST:
            self._post(command, body)
        elif code == messages.GET:
            self._get(command, body)
        elif code == messages.DELETE:
            self._delete(command)
        elif code == messages.PUT:
            self._put(command, body)
        else:
            self._manage_workers(command, body)

    # Commands

    def _reject(self, code: int, service: bytes | None, uuid: bytes | None) -> None:
        """Drop a malformed command; reply if it has a UUID that identifies it."""
        if not uuid or is_valid_uuid(uuid):
            reason = f"NFP {COMMANDS[code]} without service, target, UUID and body"
        else:
            reason = f"NFP {COMMANDS[code]} with UUID {shown(uuid)}, not printable or over {messages.UUID_MAX} bytes"
        self.replies.link.report_violation(reason)
        if uuid and is_valid_uuid(uuid):
            self.replies.reply_error(ClientCommand(code, service or b"", b"", uuid), reason)

    def _post(self, command: ClientCommand, body: bytes) -> None:
        service, target = command.service, command.target
        try:
            found = targets.parse(target, service)
        except ValueError as error:
            return self.replies.reply_error(command, str(error))
        if len(service) < 256 and len(target) < 256:
            self._service = service
            self._written_target = target
            self._target = found
            self.post_head = self._post_word + head(service, target)
        self._submit(service, target, found, command.uuid, body)
        return None

    def _submit(
        self, service: bytes, written: bytes, target: Target | None, uuid: bytes, body: bytes
    ) -> None:
        if self._refuses and self.core.held:
            message = f"this client has {self.core.jobs} unfinished jobs; send more when some have ended"
            command = ClientCommand(messages.POST, service, written, uuid)
            return self.replies.reply_error(command, message, QUEUE_FULL, messages.ERROR)
        try:
            options = json_bodies.options_in(body, self._durable)
        except ValueError as error:
            return self.replies.reply_error(ClientCommand(messages.POST, service, written, uuid), str(error))
        options.uid = uuid.decode()
        options.target = target
        self.broker.submit(self.core, service, body, make_envelope(uuid, messages.POST, written), options)
        return None

    def _get(self, command: ClientCommand, body: bytes) -> None:
        """Reply with a job's state or result, to any client that has the UUID and may read the job (NFP §GET)."""
        uid = command.uuid.decode()
        job = self.broker.jobs.job_for(self.core.principal, uid, READ)
        if self.form.norfab:
            # norfab's replies begin with 202. Its client ignores that one if it knows the job's workers.
            names = targets.names_in(command.target)
            if not names and job is not None and isinstance(job, TrackedJob) and job.names:
                names = job.names
            if names:
                self.replies.reply_state(command, messages.ACCEPTED, b"DISPATCHED", command.target, names)
        if job is not None:
            self.replies.reply_running(command, job)
            return

        def then(ended: JobResult | None) -> None:
            if self.core.gone:
                return
            if ended is not None:
                self.replies.reply_end(command, ended)
            elif not self._query(self._make_query(command, messages.GET), body):
                # norfab's client takes 400 for the job's failure, and the worker may be back in a moment.
                self.replies.reply_unknown(
                    command, messages.PENDING if self.form.norfab else messages.UNKNOWN
                )

        self.broker.jobs.recall(self.core.principal, uid, then)

    def _delete(self, command: ClientCommand) -> None:
        """Drop a queued job or tell a running job's worker (NFP §DELETE)."""
        self._on_job(command, self._cancel)

    def _cancel(self, command: ClientCommand, job: TrackedJob | None) -> None:
        if job is not None and self.broker.cancel(job):

            def cancelled() -> None:
                if not self.core.gone:
                    self.replies.reply_state(command, messages.OK, b"CANCELLED")

            self.broker.jobs.when_ended(job, cancelled)
        else:
            self.replies.reply_error(command, "no job with this UUID can be cancelled", "unknown")

    def _put(self, command: ClientCommand, body: bytes) -> None:
        """Forward input to a running job."""
        self._on_job(command, lambda command, job: self._forward_input(command, job, body))

    def _forward_input(self, command: ClientCommand, job: TrackedJob | None, body: bytes) -> None:
        names = targets.names_in(command.target)
        if self.form.norfab:
            # No reply: norfab's client would take a refusal for the job's failure. Its target is the worker in the
            # job's 202, which need not be the one that has the job now.
            if job is not None:
                self.broker.put(job, names if job.is_gathered() else [], body)
        elif job is not None and self.broker.put(job, names, body):
            self.replies.reply_state(command, messages.ACCEPTED, b"ACCEPTED", command.target)
        else:
            message = "no worker that has a job with this UUID takes input"
            self.replies.reply_error(command, message, "unknown")

    def _manage_workers(self, command: ClientCommand, body: bytes) -> None:
        """Query the management of workers."""
        query = self._make_query(command, messages.MMI)
        names = query.workers()
        if not names:
            self.replies.reply_error(command, "there are no such workers that you may operate", "unknown")
            return
        target = ", ".join(f"{printable(one.service)}@{printable(one.name)}" for one in names[:NAMES_MAX])
        self._recorded(command, OPERATE, target, lambda: self._query_or_refuse(query, body))

    def _query_or_refuse(self, query: WorkerQuery, body: bytes) -> None:
        if not self._query(query, body):
            self.replies.reply_error(query.command, "these workers have left", "unknown")

    # Jobs of others, and administration

    def _on_job(
        self, command: ClientCommand, act: Callable[[ClientCommand, TrackedJob | None], None]
    ) -> None:
        """Call `act` with the command's job if the client may cancel it, else with None. What is done to a job of
        another principal is recorded first."""
        uid = command.uuid.decode()
        job = self.broker.jobs.job_for(self.core.principal, uid, CANCEL)
        if job is None or job.owner() == self.core.principal.name:
            act(command, job)
            return

        def recorded() -> None:  # the job may have ended in the meantime
            act(command, self.broker.jobs.job_for(self.core.principal, uid, CANCEL))

        self._recorded(command, CANCEL, f"job {uid} of {job.owner()}", recorded)

    def _recorded(self, command: ClientCommand, verb: str, target: str, then: Callable[[], None]) -> None:
        """Call `then` when the act is recorded, or refuse the command if it cannot be."""
        acts = self.broker.acts
        if acts is None:
            then()
            return

        def done(reason: str) -> None:
            if self.core.gone:
                return
            if reason:
                text = f"{COMMANDS[command.code]} is refused, because it cannot be recorded: {reason}"
                self.replies.reply_error(command, text, NOT_RECORDED, messages.ERROR)
            else:
                then()

        action = f"NFP {COMMANDS[command.code]}"
        acts.record(self.core.principal.name, verb, action, target, printable(self.core.name), done)

    def _make_query(self, command: ClientCommand, sent: int) -> WorkerQuery:
        return WorkerQuery(self.broker, self.core.principal, command, sent, self._reply_query)

    # Worker queries

    def _query(self, query: WorkerQuery, body: bytes) -> bool:
        """Start a query. Return False if there are no workers for it."""
        workers = query.workers()
        if not workers:
            return False
        if self._queries < QUERIES_MAX:
            self._queries += 1
            query.start(workers, body)
        else:
            message = f"this client has {self._queries} unanswered queries to workers"
            self.replies.reply_error(query.command, message, QUEUE_FULL, messages.ERROR)
        return True

    def _reply_query(self, query: WorkerQuery) -> None:
        self._queries -= 1
        if self.core.gone:
            return
        if query.sent == messages.MMI:
            silent = [Piece(name, _NO_REPLY, "", "", b"") for name in query.silent]
            # Sorted: the workers' order of replies is random.
            pieces = sorted(query.pieces + silent, key=lambda piece: piece.name)
            self.replies.reply(query.command, messages.OK, frame(json_bodies.merge(pieces)))
        elif query.pieces:
            self.replies.reply_pieces(query.command, query.pieces, query.single)
        elif query.running or (self.form.norfab and query.silent):
            self.replies.reply_unknown(query.command, messages.PENDING)
        else:
            self.replies.reply_unknown(
                query.command, messages.NO_JOB if self.form.norfab else messages.UNKNOWN
            )
