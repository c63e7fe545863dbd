"""Questions a client asks workers themselves, through the broker: GET for a job the broker does not know (its worker
may), and management of workers (`mmi.service.worker`). The answers of all who were asked become one.

A question has a token of its own, `g` and seven hex digits: no attempt's looks like that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polydomo.core.gather import Piece
from polydomo.core.timers import Timer
from polydomo.dialects.nfp.messages import GET, OK, PENDING, WAITING_INPUT

if TYPE_CHECKING:
    from polydomo.dialects.nfp.broker_client import NfpClient
    from polydomo.dialects.nfp.broker_worker import NfpWorker

# How long workers may take to answer a question. A worker that does nothing else answers at once.
PATIENCE: Final = 5.0

SILENT: Final = b'{"error":"does not answer"}'


class WorkerQuery(Timer):
    """One question. `command` is what the client sent, `asked` what workers are sent (GET or MMI)."""

    def __init__(
        self, client: NfpClient, command: int, asked: int, service: bytes, uuid: bytes, target: bytes
    ) -> None:
        super().__init__()
        self.client = client
        self.command = command
        self.asked = asked
        self.service = service
        self.uuid = uuid
        self.target = target
        self.single = False  # one answer will do
        self.pieces: list[Piece] = []  # what was found
        self.running = False  # somebody is still at it
        self.silent: list[bytes] = []  # who did not answer
        self._waiting: dict[NfpWorker, bytes] = {}  # and the token it was asked with
        self._over = False

    def start(self, workers: list[NfpWorker], body: bytes) -> None:
        """Ask them. Those that cannot be asked are silent at once."""
        broker = self.client.broker
        self.client.questions += 1
        for worker in workers:
            if worker.answers():
                self._waiting[worker] = worker.ask(self, body)
            else:
                self.silent.append(worker.name)
        if self._waiting:
            broker.timers.set(self, broker.now + PATIENCE)
        else:
            self._end()

    def answered(self, worker: NfpWorker, status: bytes, body: bytes) -> None:
        """One of them says something."""
        if self._waiting.pop(worker, None) is None:
            return
        if status == OK:
            self.pieces.append(Piece(worker.name, body, "", "", b""))
        elif status in (PENDING, WAITING_INPUT):
            self.running = True
        elif self.asked != GET:
            self.pieces.append(Piece(worker.name, body, "", "", b""))  # its own words of refusal
        if not self._waiting or (self.single and self.pieces):
            self._end()

    def lost(self, worker: NfpWorker) -> None:
        """One of them has gone."""
        if self._waiting.pop(worker, None) is not None:
            self.silent.append(worker.name)
            if not self._waiting:
                self._end()

    def fire(self, now: float) -> None:
        """Who has not answered by now will not be waited for."""
        self.silent += [worker.name for worker in self._waiting]
        self._end()

    def _end(self) -> None:
        if self._over:
            return
        self._over = True
        self.client.questions -= 1
        for worker, token in self._waiting.items():
            worker.unask(token)
        self._waiting.clear()
        self.client.broker.timers.clear(self)
        if not self.client.core.gone:
            self.client.relayed(self)
