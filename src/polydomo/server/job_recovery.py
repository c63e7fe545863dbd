"""Recovery of stored jobs: all unfinished ones after a restart, and single ones that are sent again."""

from __future__ import annotations

import gc

from polydomo.core.broker import Broker
from polydomo.core.model import Client
from polydomo.core.pieces import Piece, unpack
from polydomo.core.policy import FOREVER
from polydomo.core.targets import RESOURCES
from polydomo.server.deliveries import Deliveries
from polydomo.server.record_codec import read_options, several
from polydomo.store import Store
from polydomo.store.records import JobRecord
from polydomo.wire.frames import Message

_MICROS = 1_000_000


class JobRecovery:
    """Turns records of the store into jobs of the core."""

    def __init__(self, broker: Broker, store: Store, deliveries: Deliveries) -> None:
        self._broker = broker
        self._events = broker.store_events
        self._store = store
        self._deliveries = deliveries
        self._recovered = 0  # `seq` of the latest recovered job

    async def recover(self) -> int:
        """Restore all unfinished jobs in order and return their number. After a failure the next call continues."""
        collecting = gc.isenabled()
        gc.disable()  # the restored jobs stay: garbage collection would take a fifth of the time
        try:
            return await self._recover()
        finally:
            if collecting:
                gc.enable()

    async def _recover(self) -> int:
        count = 0
        await self._deliveries.recover()
        clients = self._events.expected_clients().copy()
        async for records in self._store.recover(after=self._recovered):
            for record in records:
                who = (record.client, record.dialect, record.principal)
                client = clients.get(who)
                if client is None:
                    client = clients[who] = self._deliveries.absent_client(record)
                pieces = await self._pieces(record) if several(record) else {}
                self.revive(record, client, pieces)
                self._recovered = record.seq
            count += len(records)
        for alias, uid in await self._store.aliases():
            self._events.restore_alias(uid, alias)
        self._deliveries.start_grace()
        return count

    def revive(
        self, record: JobRecord, client: Client | None = None, pieces: dict[int, Piece] | None = None
    ) -> None:
        """Restore the job of a record."""
        if client is None:
            client = self._events.absent_client(record.client, record.dialect, record.principal)
        options, assignments = read_options(record)
        job = self._events.revive(
            client, record.service, record.body, record.envelope, options, record.id, record.submitted
        )
        epoch = self._broker.clock.epoch
        job.ready = 0.0 if record.not_before is None else record.not_before / _MICROS - epoch
        job.deadline = FOREVER if record.deadline is None else record.deadline / _MICROS - epoch
        job.number = record.attempt
        job.began = record.dispatched or 0
        job.assignments = assignments
        if options.target is not None and options.target.single:
            name = options.target.names[0]
            if options.target.kind == RESOURCES:
                job.resource = name
            else:
                job.pinned_worker = name
        # A job that was sent again has as many attempts as a new one, see `JobTasks.resend_job`.
        resent = max(0, record.max_attempts - job.service.policy.retries - 1)
        self._events.restore(job, record.token, record.worker, record.holder, pieces, resent)

    async def _pieces(self, record: JobRecord) -> dict[int, Piece]:
        """Return the parts of a gathered answer that were recorded, by their index."""
        pieces: dict[int, Piece] = {}
        after = 0
        while True:
            partials = await self._store.partials(record.id, after)
            if not partials:
                return pieces
            for one in partials:
                after = one.number
                message = Message(one.body, 0, len(one.body))
                index = int(message.take() or b"0")
                pieces[index] = unpack(message.rest())[0]
