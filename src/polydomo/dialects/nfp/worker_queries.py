"""Clients' queries that the broker puts to workers: GET for a job that the broker does not know but a worker may, and
the workers' management (`mmi.service.worker`). The replies of all workers become one reply.

A query has a token of its own, `g` and seven hex digits, which no attempt's token looks like.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from polydomo.core.broker import Broker
from polydomo.core.pieces import Piece
from polydomo.core.principals import OPERATE, READ, Principal
from polydomo.core.timers import Timer
from polydomo.dialects import targets
from polydomo.dialects.nfp.broker_worker import NfpWorker
from polydomo.dialects.nfp.messages import GET, MMI, OK, PENDING, WAITING_INPUT, ClientCommand

# The service whose requests go to the workers' own management.
WORKERS: Final = b"mmi.service.worker"

# Seconds that workers have for a reply. A worker without other work replies at once.
QUERY_TIMEOUT: Final = 5.0


class WorkerQuery(Timer):
    """One query. `sent` is the command that workers get (GET or MMI); `done` is called once, with the results."""

    def __init__(
        self,
        broker: Broker,
        principal: Principal,
        command: ClientCommand,
        sent: int,
        done: Callable[[WorkerQuery], None],
    ) -> None:
        super().__init__()
        self.broker = broker
        self.principal = principal
        self.command = command
        self.sent = sent
        self.done = done
        self.single = False  # one result is enough
        self.pieces: list[Piece] = []  # results
        self.running = False  # a worker is still working on the job
        self.silent: list[bytes] = []  # workers that did not reply
        self._waiting: dict[NfpWorker, bytes] = {}  # with the token of each worker's query

    def workers(self) -> list[NfpWorker]:
        """Return the NFP workers that the query is for: of its service, or of any for `mmi.service.worker` and
        `all`. Those that the client's principal may not read from (GET) or operate (MMI) are left out."""
        try:
            target = targets.parse(self.command.target)
        except ValueError:
            return []
        service = self.command.service
        found: list[NfpWorker] = []
        for worker in self.broker.workers:
            port = worker.port
            if not isinstance(port, NfpWorker) or service not in (
                WORKERS,
                targets.EVERY_SERVICE,
                port.service,
            ):
                continue
            if target is None or not target.names or worker.name in target.names:
                found.append(port)
        found = self._permitted(found)
        self.single = target is None or target.single
        return found[:1] if target is None and self.sent == MMI else found

    def _permitted(self, workers: list[NfpWorker]) -> list[NfpWorker]:
        """Return the workers that the principal may query. If it may query none of them, that is reported."""
        principals = self.broker.principals
        verb = READ if self.sent == GET else OPERATE
        permitted = [one for one in workers if principals.allows(self.principal, verb, one.service, one.name)]
        if workers and not permitted:
            principals.may(self.principal, verb, workers[0].service, workers[0].name)
        return permitted

    def start(self, workers: list[NfpWorker], body: bytes) -> None:
        """Send the query. Workers that cannot be queried count as silent."""
        for worker in workers:
            if worker.is_queryable():
                self._waiting[worker] = worker.query(self.sent, self.command.uuid, body, self._reply)
            else:
                self.silent.append(worker.name)
        if self._waiting:
            self.broker.timers.set(self, self.broker.now + QUERY_TIMEOUT)
        else:
            self._end()

    def fire(self, now: float) -> None:
        """End the query without the workers that have not replied."""
        self.silent += [worker.name for worker in self._waiting]
        self._end()

    def _reply(self, worker: NfpWorker, status: bytes, body: bytes) -> None:
        """Collect a worker's reply; no status means that the worker has left."""
        if self._waiting.pop(worker, None) is None:
            return
        if not status:
            self.silent.append(worker.name)
        elif status in (PENDING, WAITING_INPUT):
            self.running = True
        elif status == OK or self.sent != GET:  # a worker's management may refuse in its own words
            self.pieces.append(Piece(worker.name, body, "", "", b""))
        if not self._waiting or (self.single and self.pieces):
            self._end()

    def _end(self) -> None:
        for worker, token in self._waiting.items():
            worker.drop_query(token)
        self._waiting.clear()
        self.broker.timers.clear(self)
        self.done(self)
