"""Events of a store's adapter: answers to `JobStorePort`, and the jobs of before a restart."""

from __future__ import annotations

from polydomo.core.failure import Failure
from polydomo.core.features.dedup import Dedup
from polydomo.core.features.durability import Durability
from polydomo.core.features.fanout import Fanout
from polydomo.core.features.recovery import Recovery, identity_of
from polydomo.core.model import Client
from polydomo.core.pieces import Piece
from polydomo.core.tracked_job import TRACKED_COST, Options, TrackedJob
from polydomo.core.tracking import Tracking


class StoreEvents:
    """The core's side of a store. `failure`: what the store was told cannot be written."""

    def __init__(
        self, tracking: Tracking, durability: Durability, dedup: Dedup, fanout: Fanout, recovery: Recovery
    ) -> None:
        self._tracking = tracking
        self._durability = durability
        self._dedup = dedup
        self._fanout = fanout
        self._recovery = recovery

    def stored(self, job: TrackedJob, failure: Failure | None) -> None:
        """Answer `JobStorePort.add`."""
        self._durability.stored(job, failure)

    def recorded(self, job: TrackedJob, failure: Failure | None) -> None:
        """Answer `JobStorePort.finish`."""
        self._durability.recorded(job, failure)

    def looked_up(
        self,
        job: TrackedJob,
        body: bytes | None,
        failure: Failure | None,
        worker: bytes = b"",
        gathered: bool = False,
    ) -> None:
        """Answer `JobStorePort.look_up`, or `add` of an id that is known: how the earlier job ended.

        Without body and failure there was none.
        """
        self._dedup.looked_up(job, body, failure, worker, gathered)

    def aliased(self, job: TrackedJob, failure: Failure | None) -> None:
        """Answer `JobStorePort.alias`."""
        self._dedup.aliased(job, failure)

    def piece_stored(self, job: TrackedJob, index: int, failure: Failure | None) -> None:
        """Answer `JobStorePort.gathered`."""
        self._fanout.piece_stored(job, index, failure)

    def retell(
        self, client: Client, name: bytes, envelope: bytes, body: bytes | None, failure: Failure | None
    ) -> None:
        """Answer `JobStorePort.tell`: how a job of the service `name` ended."""
        self._recovery.retell(client, name, envelope, body, failure)

    # After a restart

    def absent_client(self, name: bytes, dialect: str, principal: str) -> Client:
        """Return what stands for the client of a job until it is back."""
        return self._recovery.absent(name, dialect, self._tracking.principals.get(principal))

    def expect(self, client: Client, asks: bool) -> None:
        """Give an absent client its jobs back if it returns. `asks`: it asks for the results by itself."""
        self._recovery.expect(client, asks)

    def missed(self, client: Client, uid: str) -> None:
        """Tell an expected client, if it returns, how the job `uid` ended."""
        self._recovery.untold[identity_of(client)].append(uid)

    def expected_clients(self) -> dict[tuple[bytes, str, str], Client]:
        """Return the clients that may return, by name, dialect and principal."""
        return self._recovery.absent_clients

    def is_retelling(self) -> bool:
        """Return whether some of them cannot ask for their results."""
        return bool(self._recovery.untold)

    def give_up_absent_clients(self) -> None:
        """Expect no longer clients that cannot ask for their results."""
        self._recovery.give_up_absent_clients()

    def revive(
        self,
        client: Client,
        name: bytes,
        body: bytes,
        envelope: bytes,
        options: Options,
        uid: str,
        submitted: int,
    ) -> TrackedJob:
        """Return an unfinished job, which `restore` lets go on. `submitted`: microseconds of wall time.

        It was accepted before the restart, so no limit refuses it now.
        """
        accounting = self._tracking.accounting
        accounting.numbered += 1
        service = self._tracking.services.find(name)
        now = self._tracking.clock.now
        job = TrackedJob(accounting.numbered, client, service, body, envelope, now, options, uid, submitted)
        accounting.resumed(job)
        accounting.take(client.principal, TRACKED_COST)
        job.accepted = True
        job.restored = True
        job.durable = True
        job.added = True
        return job

    def restore(
        self,
        job: TrackedJob,
        token: bytes,
        holder: bytes,
        principal: str,
        pieces: dict[int, Piece] | None = None,
        resent: int = 0,
    ) -> None:
        """Go on with an unfinished job (`Recovery.restore`)."""
        self._recovery.restore(job, token, holder, principal, pieces or {}, resent)

    def restore_alias(self, uid: str, alias: str) -> None:
        """Know an unfinished job by another id, too."""
        self._dedup.restore_alias(uid, alias)

    def forget_result(self, uid: str) -> None:
        """Forget how a job ended."""
        self._dedup.history.drop(uid)
