"""Recovery: unfinished durable jobs go on after the broker's restart, and so do their clients and workers.

A job that was running then is held for its service's `grace`: its worker may still come with the reply, or be asked
for the job. A client that cannot ask for its results is told what ended while it was away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from polydomo.core.failure import Failure
from polydomo.core.features.fanout import Fanout
from polydomo.core.features.feature import PASS, TAKEN, Feature
from polydomo.core.model import Client, ClientPort, Job, NullClientPort, Service, Worker
from polydomo.core.pieces import Piece
from polydomo.core.principals import Principal
from polydomo.core.states import DELAY, DISPATCH, NEXT
from polydomo.core.timers import CallTimer
from polydomo.core.tracked_job import TrackedJob
from polydomo.core.tracking import Tracking

# Shadows above which those without jobs are forgotten.
SHADOWS: Final = 1024


class Recovery(Feature):
    """Jobs, clients and workers of before the restart."""

    on_grace_over: Callable[[Client], None]  # set by the broker: the clients need the recovery first

    def __init__(self, tracking: Tracking, fanout: Fanout) -> None:
        self.absent_clients: dict[tuple[bytes, str, str], Client] = {}  # by name, dialect and principal
        # Ids of jobs that ended while a client was away that cannot ask for them, by its name, dialect and
        # principal.
        self.untold: dict[tuple[bytes, str, str], list[str]] = {}
        self.orphans: dict[bytes, TrackedJob] = {}  # running when the broker stopped; by token
        # What stands for clients that are not connected or will be told nothing, by name, dialect and principal.
        self.shadows: dict[tuple[bytes, str, str], Client] = {}
        self._shadows_limit = SHADOWS
        self._tracking = tracking
        self._fanout = fanout
        self._grace: dict[TrackedJob, CallTimer] = {}  # how long each orphan is held

    def on_cancel(self, job: Job, failure: Failure) -> int:
        if not isinstance(job, TrackedJob) or job not in self._grace:
            return PASS
        self._release(job)
        return TAKEN

    def on_end(self, job: TrackedJob, body: bytes | None, failure: Failure | None) -> None:
        client = job.client
        if self.untold and client.gone:
            who = identity_of(client)
            untold = self.untold.get(who)
            if untold is not None and client is self.absent_clients[who]:
                untold.append(job.uid)

    def on_register(self, worker: Worker, service: Service) -> None:
        """Ask a worker about the jobs that it had, if its dialect can."""
        for token, job in list(self.orphans.items()):
            if job.service is not service or not had(worker, job):
                continue
            if token in self.orphans and worker.port.reclaim(job) and self.claim(worker, token) is not None:
                self._tracking.scheduler.reattach(worker, job)

    def absent(self, name: bytes, dialect: str, principal: Principal) -> Client:
        """Return what stands for a client that is not connected: it is told nothing."""
        who = (name, dialect, principal.name)
        client = self.shadows.get(who)
        if client is None:
            if len(self.shadows) >= self._shadows_limit:
                self.shadows = {one: shadow for one, shadow in self.shadows.items() if shadow.jobs}
                self._shadows_limit = max(SHADOWS, 2 * len(self.shadows))
            now = self._tracking.clock.now
            client = Client(name, dialect, NullClientPort(), principal, now, self.on_grace_over)
            client.gone = True
            self.shadows[who] = client
        return client

    def shadow_of(self, client: Client) -> Client:
        """Return what has those jobs of a client that it will not be told of unasked."""
        shadow = client.shadow
        if shadow is None:
            shadow = client.shadow = self.absent(client.name, client.dialect, client.principal)
            shadow.held = True  # so that the end of its jobs is looked at
        shadow.casts = client
        return shadow

    def give_shadow(self, client: Client) -> None:
        """Count what is left of an earlier client of the same name for a new one."""
        shadow = self.shadows.get(identity_of(client))
        if shadow is not None and shadow.jobs:
            self.shadow_of(client)

    def expect(self, client: Client, asks: bool) -> None:
        """Give an absent client its jobs back if it returns. `asks`: it asks for the results by itself."""
        self.absent_clients[identity_of(client)] = client
        if not asks:
            self.untold[identity_of(client)] = []

    def returned(self, name: bytes, dialect: str, port: ClientPort, principal: Principal) -> Client | None:
        """Return the client of before the restart that has jobs or results to be told of.

        Another principal's client of the same name gets nothing of it.
        """
        who = (name, dialect, principal.name)
        client = self.absent_clients.pop(who, None)
        untold = self.untold.pop(who, [])
        if client is None or not (client.jobs or untold):
            return None
        self.shadows.pop(who, None)  # it stands for itself now
        client.port = port
        client.gone = client.held = False
        client.casts = None
        client.since = self._tracking.clock.now
        if untold and self._tracking.store is not None:
            self._tracking.store.tell(client, untold)
        return client

    def retell(
        self, client: Client, name: bytes, envelope: bytes, body: bytes | None, failure: Failure | None
    ) -> None:
        """Tell a client that has returned how a job ended; a stand-in for the job carries the reply."""
        service = self._tracking.services.find(name)
        job = Job(0, client, service, b"", envelope, self._tracking.clock.now)
        self._tracking.tell(job, body, failure)

    def give_up_absent_clients(self) -> None:
        """Expect no longer clients that cannot ask for their results.

        A later client of the same name would take an old reply for that to its own request.
        """
        for name in self.untold:
            del self.absent_clients[name]
        self.untold.clear()

    def restore(
        self,
        job: TrackedJob,
        token: bytes,
        holder: bytes,
        principal: str,
        pieces: dict[int, Piece],
        resent: int,
    ) -> None:
        """Go on with an unfinished job. Called in the order in which the jobs were submitted.

        - `token`, `holder`, `principal`: the attempt, and the worker that may still come with its reply;
        - `pieces`: what is known of a job for several workers;
        - `resent`: attempts that were made before the job was sent again. They count for nothing.
        """
        tracking = self._tracking
        now = tracking.clock.now
        job.attempt = max(0, job.number - resent)
        job.attempt_timeout = job.timeout
        for feature in tracking.features.all:
            feature.on_restore(job)
        policy = job.service.policy
        if job.is_gathered() and job.assignments:
            self._fanout.restore(job, pieces)
        elif token and policy.grace > 0:
            job.token = token
            job.holder = holder
            job.holder_principal = principal
            job.names = [holder]
            self.orphans[token] = job
            tracking.hold(job, DELAY)
            timer = self._grace[job] = CallTimer(self._give_up_worker, job)
            tracking.timers.set(timer, now + policy.grace)
        elif (
            job.target is None
            and not job.cache_key
            and job.ready <= now < job.deadline
            and not job.service.idle
        ):
            # What `proceed` comes to for nearly all of a hundred thousand jobs.
            tracking.services.keep(job.service)
            tracking.scheduler.queue(job.service, job)
        else:
            tracking.proceed(job)

    def claim(self, worker: Worker, token: bytes) -> TrackedJob | None:
        """Return the job of an attempt that `worker` had before the restart; it is running again.

        A token alone proves nothing: the worker must have the holder's name and principal, and offer the service.
        """
        job = self.orphans.get(token)
        if job is None or job.service not in worker.services or not had(worker, job):
            return None
        self._release(job)
        job.state = NEXT[job.state][DISPATCH]
        return job

    def _give_up_worker(self, job: TrackedJob) -> None:
        """Try a job again whose worker did not come back."""
        self._release(job)
        if job.attempt:
            self._tracking.scheduler.place(job, True)
        else:
            self._tracking.proceed(job)

    def _release(self, job: TrackedJob) -> None:
        del self.orphans[job.token]
        self._tracking.timers.clear(self._grace.pop(job))
        self._tracking.release(job)


def had(worker: Worker, job: TrackedJob) -> bool:
    """Return whether a job that was running before the restart was this worker's."""
    return job.holder == worker.name and job.holder_principal == worker.principal.name


def identity_of(client: Client) -> tuple[bytes, str, str]:
    """Return what a client must have to be the same one after a restart."""
    return client.name, client.dialect, client.principal.name
