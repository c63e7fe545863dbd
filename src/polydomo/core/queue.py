"""Queues that are fair between principals and between the clients of each, with priorities and ageing.

A `FairQueue` is a rotation of client queues: each turn takes one job of the next client, so 10,000 waiting jobs of one
client do not starve another's single one (MDP §Overall Topology: fairness SHOULD be). Each principal has a rotation of
its own, its share, and the shares take turns: a principal with 1,000 clients gets no more than one with a single
client. Nearly always only one principal waits. Its share is then the only one, and a job costs no more than without
shares.

Jobs of another priority than 0 are in a `PriorityBand`, a queue of its own. Which band is next depends on priority and
age: a job that has waited for `ageing` seconds counts like one of the next higher priority. The age of a band is that
of its first job.

Queues know nothing of jobs but `QueueEntry`, and nothing of clients but `Submitter`.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from polydomo.core.policy import FOREVER
from polydomo.core.principals import Principal
from polydomo.core.timers import Timer


class QueueEntry:
    """A waiting job as its queue sees it."""

    __slots__ = ("attempt", "expires", "submitted", "tracked")

    def __init__(self, submitted: float, tracked: bool) -> None:
        self.submitted = submitted
        self.attempt = 0
        self.expires = 0.0  # waiting longer than this fails the job
        self.tracked = tracked  # `enter` may return a band

    def enter(self, queue: FairQueue[Any]) -> FairQueue[Any]:
        """Return the ring of `queue` that the job waits in: `queue` itself, or the band of the job's priority."""
        return queue


EntryT = TypeVar("EntryT", bound=QueueEntry)


class Submitter(Timer):
    """A client as its queues see it."""

    def __init__(self, principal: Principal) -> None:
        super().__init__()
        self.principal = principal  # the owner of its jobs
        self.relay = False  # another broker, whose jobs are not passed on to a third
        self.queues: dict[FairQueue[Any], ClientQueue[Any]] = {}  # those in which it has waiting jobs


class ClientQueue(Generic[EntryT]):
    """The waiting jobs of one client in one queue, oldest first."""

    __slots__ = ("client", "jobs")

    def __init__(self, client: Submitter) -> None:
        self.client = client
        self.jobs: deque[EntryT] = deque()


class FairQueue(Timer, Generic[EntryT]):
    """The jobs that wait for the same thing. As a timer it is due when the first of them may expire: `on_expiry`."""

    def __init__(
        self, on_expiry: Callable[[FairQueue[EntryT]], None], ageing: float, priority: int = 0
    ) -> None:
        super().__init__()
        self.ageing = ageing
        self.priority = priority
        self.client_queues: dict[Submitter, ClientQueue[EntryT]] = {}
        # The clients of the principal whose turn it is; empty: no job waits in this ring.
        self.rotation: deque[ClientQueue[EntryT]] = deque()
        self.principal: Principal | None = None  # whose they are
        # The clients of the other principals, the next one first; none is empty.
        self.others: OrderedDict[Principal, deque[ClientQueue[EntryT]]] = OrderedDict()
        self.waiting = 0  # with all bands
        self.bands: dict[int, PriorityBand[EntryT]] = {}  # those that have jobs
        self.uneven = False  # some jobs here have a wait of their own, so a later one may expire earlier
        self._on_expiry = on_expiry

    def fire(self, now: float) -> None:
        self._on_expiry(self)

    def whole(self) -> FairQueue[EntryT]:
        """Return the queue that counts these jobs: a band's is the one it belongs to."""
        return self

    def shrunk(self, count: int) -> None:
        """Hear that `count` jobs left the queue."""

    def band(self, priority: int) -> FairQueue[EntryT]:
        """Return the band of a priority other than 0."""
        band = self.bands.get(priority)
        if band is None:
            band = self.bands[priority] = PriorityBand(self, priority)
        return band

    def add(self, job: EntryT, client: Submitter) -> None:
        """Queue a job after its client's others."""
        ring: FairQueue[EntryT] = self if not job.tracked else job.enter(self)
        queue = ring.client_queues.get(client)
        if queue is None:
            queue = ring._open(client)
            if ring.principal is client.principal:
                ring.rotation.append(queue)
            else:
                ring._share_of(client.principal).append(queue)
        queue.jobs.append(job)
        self.waiting += 1

    def add_first(self, job: EntryT, client: Submitter) -> None:
        """Queue a job that lost its worker. It has waited already, so it is next."""
        ring: FairQueue[EntryT] = self if not job.tracked else job.enter(self)
        queue = ring.client_queues.get(client)
        if queue is None:
            queue = ring._open(client)
        else:
            ring._take_out(queue)
        ring._give_turn(client.principal)
        ring.rotation.appendleft(queue)
        queue.jobs.appendleft(job)
        self.waiting += 1

    def next(self, now: float) -> EntryT:
        """Take out the job whose turn it is. Only when `waiting` is not 0."""
        if self.bands:
            return self._best_band(now)._next()
        # The usual case of `_next`, without its calls; `PinnedQueue`, which has to hear of it, overrides this.
        rotation = self.rotation
        queue = rotation[0]
        job = queue.jobs.popleft()
        if queue.jobs:
            rotation.rotate(-1)
        else:
            rotation.popleft()
            self._close(queue)
        if self.others:
            self._next_turn()
        elif not rotation:
            self.uneven = False
        self.waiting -= 1
        return job

    def next_of_ours(self, now: float) -> EntryT | None:
        """Take out the next job of a client that is no broker; None if there is none. The others keep their places."""
        if not self.bands and self.rotation and not self.rotation[0].client.relay:
            return self.next(now)
        best: tuple[FairQueue[EntryT], ClientQueue[EntryT]] | None = None
        most = -FOREVER
        for ring in self.rings():
            for queue in ring.in_turn():
                if not queue.client.relay:
                    weight = ring._weight(queue.jobs[0], now)
                    if weight > most:
                        best = ring, queue
                        most = weight
                    break
        if best is None:
            return None
        ring, queue = best
        job = queue.jobs.popleft()
        principal = queue.client.principal
        ring._take_out(queue)
        if queue.jobs:
            ring._share_of(principal).append(queue)
        else:
            ring._close(queue)
        ring._end_turn(principal)
        ring._left(1)
        return job

    def drop_client(self, client: Submitter) -> deque[EntryT]:
        """Take out all jobs that a client has in this ring."""
        queue = self.client_queues[client]
        self._take_out(queue)
        self._close(queue)
        self._left(len(queue.jobs))
        return queue.jobs

    def remove(self, job: EntryT, client: Submitter) -> None:
        """Take out one job of this ring."""
        queue = self.client_queues[client]
        queue.jobs.remove(job)
        if not queue.jobs:
            self._take_out(queue)
            self._close(queue)
        self._left(1)

    def rings(self) -> list[FairQueue[EntryT]]:
        """Return this queue and its bands."""
        return [self, *self.bands.values()]

    def in_turn(self) -> list[ClientQueue[EntryT]]:
        """Return the client queues of this ring: those of the share whose turn it is, then those of the others."""
        if not self.others:
            return list(self.rotation)
        return [*self.rotation, *(queue for share in self.others.values() for queue in share)]

    def take_expired(self, now: float) -> list[EntryT]:
        """Take out all jobs that have waited too long."""
        expired: list[EntryT] = []
        for ring in self.rings():
            found = ring._take_expired(now)
            if found:
                expired += found
                ring._left(len(found))
        return expired

    def next_expiry(self) -> float:
        """Return when the first waiting job expires. Only when `waiting` is not 0."""
        earliest = FOREVER
        for ring in self.rings():
            for queue in ring.client_queues.values():
                for job in queue.jobs:
                    earliest = min(earliest, job.expires)
                    if not job.attempt and not job.tracked and not ring.uneven:
                        break
        return earliest

    def shorten(self, latest: float) -> None:
        """Let no plain job wait beyond `latest`. So jobs stay in the order of their expiry if the wait gets shorter."""
        for queue in self.client_queues.values():
            for job in queue.jobs:
                if not job.tracked:
                    job.expires = min(job.expires, latest)

    def jobs(self) -> list[EntryT]:
        """Return all waiting jobs."""
        return [job for ring in self.rings() for queue in ring.in_turn() for job in queue.jobs]

    def _next(self) -> EntryT:
        """Take out the next job of this ring."""
        queue = self.rotation[0]
        job = queue.jobs.popleft()
        if queue.jobs:
            self.rotation.rotate(-1)
        else:
            self.rotation.popleft()
            self._close(queue)
        if self.others:
            self._next_turn()
        self._left(1)
        return job

    def _best_band(self, now: float) -> FairQueue[EntryT]:
        best: FairQueue[EntryT] | None = None
        most = -FOREVER
        for ring in self.rings():
            if ring.rotation:
                weight = ring._weight(ring.rotation[0].jobs[0], now)
                if weight > most:
                    best = ring
                    most = weight
        assert best is not None
        return best

    def _weight(self, job: EntryT, now: float) -> float:
        """Return what a job of this ring counts for: its priority and its age."""
        return self.priority + (now - job.submitted) / self.whole().ageing

    def _left(self, count: int) -> None:
        """Count `count` jobs less in this ring."""
        whole = self.whole()
        whole.waiting -= count
        if not self.rotation:
            self.uneven = False
            if self is not whole:
                whole.bands.pop(self.priority, None)
        whole.shrunk(count)

    def _take_expired(self, now: float) -> list[EntryT]:
        expired: list[EntryT] = []
        for queue in self.in_turn():
            jobs = queue.jobs
            kept: list[EntryT] = []
            # Jobs are in order of arrival, so the first that has time left ends the search. But jobs that came back to
            # the front after a lost attempt begin to wait again, and durable ones wait for ever: they may have more
            # time left than those after them.
            while jobs:
                if jobs[0].expires <= now:
                    expired.append(jobs.popleft())
                elif jobs[0].attempt or jobs[0].tracked or self.uneven:
                    kept.append(jobs.popleft())
                else:
                    break
            jobs.extendleft(reversed(kept))
            if not jobs:
                self._take_out(queue)
                self._close(queue)
        return expired

    def _next_turn(self) -> None:
        """Give the next share its turn; the one that had it comes last. Only when there are others."""
        principal, rotation = self.others.popitem(False)
        if self.rotation and self.principal is not None:
            self.others[self.principal] = self.rotation
        self.principal = principal
        self.rotation = rotation

    def _end_turn(self, principal: Principal) -> None:
        """Let the share of a principal come last whose job was taken out of turn."""
        if principal in self.others:
            self.others.move_to_end(principal)
        elif self.others:
            self._next_turn()

    def _give_turn(self, principal: Principal) -> None:
        """Give a principal's share its turn; the one that had it is next."""
        if self.principal is principal:
            return
        rotation = self.others.pop(principal, None)
        if self.rotation and self.principal is not None:
            self.others[self.principal] = self.rotation
            self.others.move_to_end(self.principal, False)
        self.principal = principal
        self.rotation = deque() if rotation is None else rotation

    def _share_of(self, principal: Principal) -> deque[ClientQueue[EntryT]]:
        """Return the clients of a principal's share, which is new and comes last if it has none yet."""
        if not self.rotation:
            self.principal = principal
        if self.principal is principal:
            return self.rotation
        share = self.others.get(principal)
        if share is None:
            share = self.others[principal] = deque()
        return share

    def _take_out(self, queue: ClientQueue[EntryT]) -> None:
        """Take a client's queue out of its share."""
        principal = queue.client.principal
        share = self.others.get(principal)
        if share is not None:
            share.remove(queue)
            if not share:
                del self.others[principal]
            return
        self.rotation.remove(queue)
        if not self.rotation and self.others:
            self._next_turn()

    def _open(self, client: Submitter) -> ClientQueue[EntryT]:
        queue: ClientQueue[EntryT] = ClientQueue(client)
        self.client_queues[client] = queue
        client.queues[self] = queue
        return queue

    def _close(self, queue: ClientQueue[EntryT]) -> None:
        del self.client_queues[queue.client]
        del queue.client.queues[self]


class PinnedQueue(FairQueue[EntryT]):
    """Jobs that only one worker may do, connected or not. `on_shrunk` is told how many jobs left it."""

    def __init__(
        self,
        on_expiry: Callable[[FairQueue[EntryT]], None],
        ageing: float,
        on_shrunk: Callable[[PinnedQueue[EntryT], int], None],
    ) -> None:
        super().__init__(on_expiry, ageing)
        self._on_shrunk = on_shrunk

    def next(self, now: float) -> EntryT:
        return self._best_band(now)._next()

    def shrunk(self, count: int) -> None:
        self._on_shrunk(self, count)


class PriorityBand(FairQueue[EntryT]):
    """The jobs of one priority in a queue."""

    def __init__(self, queue: FairQueue[EntryT], priority: int) -> None:
        super().__init__(queue._on_expiry, queue.ageing, priority)
        self._queue = queue

    def whole(self) -> FairQueue[EntryT]:
        return self._queue
