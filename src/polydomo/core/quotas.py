"""Quotas: principals that have reached what they may take, and their clients, which wait for room.

Each quota is a hard limit: a job beyond it is refused. Few are, because clients are held back before: one that submits
a job while its principal has taken more than three quarters is not read from until at most half is taken. So peers
whose protocol has no word for a refusal are only slowed down. Clients go on in the order in which they were held: one
for each job that ends, and some more now and then, since clients that went on may have nothing to send. The last
quarter of the quota is for the jobs that several of them send at once.

The rate is a token bucket that holds one second's worth of jobs, and at least one.

A principal without a quota costs a job nothing but two additions, and its end the same (`Accounting`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from polydomo.core.model import JOB_COST, Client
from polydomo.core.policy import FOREVER
from polydomo.core.principals import UNLIMITED, Principal, Quota
from polydomo.core.timers import Clock, Timer, TimerHeap

# Seconds between two looks at principals with held clients. The rate of one may allow another job by then.
PAUSE: Final = 0.05

# Clients that go on at once if the bytes of their principal's jobs are limited: nobody knows how many they will send.
AT_ONCE: Final = 16


class Quotas(Timer):
    """All principals of a broker that have a quota. As a timer it is due when held clients may go on."""

    # Set by the owner: lets a client go on that is held no longer for its principal.
    on_release: Callable[[Client], None]

    def __init__(self, clock: Clock, timers: TimerHeap) -> None:
        super().__init__()
        self.held: dict[Principal, dict[Client, None]] = {}  # clients, in the order in which they were held
        self._clock = clock
        self._timers = timers

    def refusal(self, principal: Principal, size: int) -> str:
        """Return which quota has no room for a job of `size` bytes; empty: all have."""
        quota = principal.quota
        if quota is None:
            return ""
        if principal.jobs >= quota.jobs:
            return f"{principal.name} has {principal.jobs} unanswered jobs and may have {quota.jobs}"
        if principal.memory + size + JOB_COST > quota.memory:
            return f"the unanswered jobs of {principal.name} take {principal.memory} bytes of {quota.memory}"
        if quota.rate != FOREVER and self._refill(principal, quota) < 1.0:
            return f"{principal.name} may submit {quota.rate:g} jobs per second"
        return ""

    def storing(self, principal: Principal, size: int) -> str:
        """Return why no durable job of `size` bytes can be stored for a principal; empty: it can be."""
        quota = principal.quota
        if quota is None or principal.stored + size <= quota.stored:
            return ""
        return f"{principal.name} has {principal.stored} bytes on disk and may have {quota.stored}"

    def submitted(self, client: Client) -> None:
        """Count a job of a principal with a quota, and hold its client if most of the quota is taken."""
        principal = client.principal
        quota = principal.quota
        if quota is None:
            return
        tokens = FOREVER
        if quota.rate != FOREVER:
            if principal.tokens < 1.0:  # a question to the broker itself, for which `refusal` was not asked
                self._refill(principal, quota)
            tokens = principal.tokens = max(principal.tokens - 1.0, 0.0)
        if (
            principal.jobs * 4 > quota.jobs * 3
            or principal.memory * 4 > quota.memory * 3
            or tokens * 4 < burst(quota)
        ):
            self.hold(client)

    def hold(self, client: Client) -> None:
        """Take nothing more from a client until its principal has room."""
        if client.gone or client.throttled:
            return
        principal = client.principal
        client.throttled = principal.throttled = True
        held = self.held.get(principal)
        if held is None:
            held = self.held[principal] = {}
        held[client] = None
        if not client.held:
            client.held = True
            client.port.hold()
        self._timers.set(self, self._clock.now + PAUSE)

    def left(self, client: Client) -> None:
        """Forget a client that is gone for good."""
        if client.throttled:
            client.throttled = False
            principal = client.principal
            held = self.held[principal]
            del held[client]
            self._tidy(principal, held)

    def ended(self, principal: Principal) -> None:
        """Let a held client of a principal go on, one of whose jobs has ended, if there is room."""
        self._release(principal, 1)

    def _release(self, principal: Principal, most: int) -> None:
        held = self.held[principal]
        for client in list(islice(held, min(most, self._room(principal, len(held))))):
            del held[client]
            client.throttled = False
            self.on_release(client)
        self._tidy(principal, held)

    def fire(self, now: float) -> None:
        for principal in list(self.held):
            self._release(principal, len(self.held[principal]))
        if self.held:
            self._timers.set(self, now + PAUSE)

    def _room(self, principal: Principal, count: int) -> int:
        """Return how many of `count` clients may go on."""
        quota = principal.quota
        if quota is None:
            return count
        if principal.jobs * 2 > quota.jobs or principal.memory * 2 > quota.memory:
            return 0
        room = min(count, max(quota.jobs // 4, 1), AT_ONCE if quota.memory < UNLIMITED else count)
        if quota.rate != FOREVER:
            tokens = self._refill(principal, quota)
            room = 0 if tokens * 2 < burst(quota) else min(room, int(tokens))
        return room

    def _refill(self, principal: Principal, quota: Quota) -> float:
        """Return how many jobs a principal's rate allows at the moment."""
        now = self._clock.now
        principal.tokens = min(burst(quota), principal.tokens + (now - principal.refilled) * quota.rate)
        principal.refilled = now
        return principal.tokens

    def _tidy(self, principal: Principal, held: dict[Client, None]) -> None:
        if not held and self.held.get(principal) is held:
            del self.held[principal]
            principal.throttled = False


def burst(quota: Quota) -> float:
    """Return how many jobs a rate allows at once."""
    return max(1.0, quota.rate)
