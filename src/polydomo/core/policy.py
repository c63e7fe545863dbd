"""Numbers that say how a service and the broker behave. Every one can be configured; `docs/reference` lists them."""

from collections.abc import Mapping
from typing import Final

FOREVER: Final = float("inf")

# One part in so many of the broker's memory, and of each queue, is for principals that have taken little of it.
RESERVE: Final = 4

# Who shares the answers of a memoised service (`Policy.memo_scope`).
SHARED: Final = "shared"  # all principals that may call it
PRINCIPAL: Final = "principal"  # each has its own


def label_text(value: object) -> str:
    """Return the form in which a label's value is compared: its text, whatever type its worker or a setting gave it.

    So `gpu=true` fits both true and "true", and `cores=2` fits 2, 2.0 and "2". Texts are taken as they are: "1.10" is
    not "1.1".
    """
    if isinstance(value, bool):  # before numbers: a bool is one to Python
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "null" if value is None else str(value)


def label_texts(labels: Mapping[str, object]) -> dict[str, str]:
    """Return labels with their values as they are compared."""
    return {name: label_text(value) for name, value in labels.items()}


class WakePolicy:
    """How workers that fetch their jobs themselves are told that there are some."""

    def __init__(
        self,
        rule: str = "idle",
        first: int = 1,
        widest: int = 32,
        patience: float = 0.1,
        labels: Mapping[str, object] | None = None,
    ) -> None:
        self.rule = rule  # which of them come first
        self.first = first  # how many one job wakes
        self.widest = widest  # twice as many each time that no worker answers, up to this
        self.patience = patience  # within so many seconds
        self.labels = {} if labels is None else label_texts(labels)  # only workers that have all of these

    def suits(self, labels: dict[str, str]) -> bool:
        """May a worker with these labels (`label_texts`) be woken?"""
        return all(labels.get(name) == value for name, value in self.labels.items())


class Policy:
    """How the jobs of one service are treated. Times are seconds; FOREVER turns a limit off."""

    def __init__(
        self,
        wait: float = 60.0,
        timeout: float = 60.0,
        retries: int = 2,
        queue: int = 100_000,
        durable: bool = False,
        backoff: float = 0.0,
        grace: float = 10.0,
        retention: float = 86400.0,
        ageing: float = 10.0,
        volatile: bool = False,
        memo: bool = False,
        memo_ttl: float = 86400.0,
        memo_bytes: int = 64 * 1024 * 1024,
        waking: WakePolicy | None = None,
        liveness_busy: int = 0,
        memo_scope: str = SHARED,
    ) -> None:
        self.wait = wait  # how long a job may wait for a worker
        self.timeout = timeout  # how long one attempt may run, from dispatch
        self.retries = retries  # further attempts after the first one was lost
        self.queue = queue  # how many jobs may wait
        self.open_queue = queue - queue // RESERVE  # of these, how many may be anybody's
        self.durable = durable  # jobs are kept on disk, and then `wait` does not end them
        self.backoff = backoff  # the pause before the second attempt; it doubles with each further one
        self.grace = (
            grace  # after a restart, how long a running job's worker has to come back with its answer
        )
        self.retention = retention  # how long a durable job's result is kept
        self.ageing = ageing  # a job that has waited so long counts like one of the next higher priority
        self.volatile = volatile  # never on disk, whatever a client or its dialect wishes
        self.memo = memo  # the same request again gets the same answer, without a worker
        self.memo_ttl = memo_ttl  # for so long
        self.memo_bytes = memo_bytes  # as far as all its answers together fit in here
        self.memo_scope = memo_scope  # who gets the same answer: all principals, or only the one that asked
        self.waking = WakePolicy() if waking is None else waking
        # Silent intervals after which a worker that holds a job is given up; 0: only if it is known to beat while busy.
        self.liveness_busy = liveness_busy


class BrokerLimits:
    """Limits of the broker as a whole, and of one client."""

    def __init__(
        self,
        client_jobs: int = 1000,
        client_bytes: int = 256 * 1024 * 1024,
        client_grace: float = 10.0,
        memory: int = 2 * 1024 * 1024 * 1024,
        hops: int = 32,
        services: int = 100_000,
    ) -> None:
        self.client_jobs = client_jobs  # unanswered jobs per client before it is no longer read from
        self.client_bytes = client_bytes  # and the bytes of their bodies
        self.client_grace = client_grace  # how long the jobs of a named client that dropped off are kept
        self.memory = memory  # bytes of all waiting and running bodies together
        self.hops = hops  # how often one job may be passed on
        self.services = services  # service names known at once


class Heartbeat:
    """The agreed rhythm of one kind of worker: a sign of life each `interval`, given up after `liveness` of them."""

    def __init__(self, interval: float = 2.5, liveness: float = 4) -> None:
        self.interval = interval
        self.liveness = liveness
