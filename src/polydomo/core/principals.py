"""Principals: on whose behalf a client or worker acts, and what that allows.

Where a principal comes from is the door's matter: a key, a certificate, a token, credentials of a local process, or the
listener. The core knows its name, asks the `Authority` port what it may do, and remembers the answers. Without an
authority every principal may do everything.

A job belongs to the principal that submitted it. Its owner may always read, watch and cancel it; others need the verb
for the job's service.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from mypy_extensions import mypyc_attr

from polydomo.core.policy import FOREVER

# The name of a peer that did not authenticate.
ANONYMOUS: Final = "anonymous"

CALL: Final = "call"  # submit jobs to a service
SERVE: Final = "serve"  # be a worker of a service
READ: Final = "read"  # read others' jobs and results
CANCEL: Final = "cancel"  # cancel others' jobs, and add input to them
OBSERVE: Final = "observe"  # see services, workers, clients, jobs' metadata, metrics, events
OPERATE: Final = "operate"  # pause services, resend dead letters, dismiss workers
ADMINISTER: Final = "administer"  # stop the broker, read its log and its inventory
DELEGATE: Final = "delegate"  # act for another principal

VERBS: Final = (CALL, SERVE, READ, CANCEL, OBSERVE, OPERATE, ADMINISTER, DELEGATE)

# The object of verbs that concern no service in particular.
EVERYTHING: Final = b"*"

# Remembered answers per principal; service names come from peers.
REMEMBERED: Final = 1_000

# Principals above which those without peers, jobs and records are forgotten.
KNOWN: Final = 1_000

# A time at which every bucket of tokens began to fill.
LONG_AGO: Final = -1e9

# More than any amount that is counted, and still a machine word where the core is compiled.
UNLIMITED: Final = (1 << 62) - 1


class Quota:
    """The most that one principal may take of a broker. FOREVER and UNLIMITED turn a limit off."""

    def __init__(
        self,
        rate: float = FOREVER,
        jobs: int = UNLIMITED,
        memory: int = UNLIMITED,
        stored: int = UNLIMITED,
        connections: int = UNLIMITED,
    ) -> None:
        self.rate = rate  # jobs per second; as many at once, and at least one
        self.jobs = jobs  # unanswered ones
        self.memory = memory  # bytes of their requests; `bytes` in the configuration
        self.stored = stored  # bytes on disk: unfinished durable jobs, results, dead letters
        self.connections = connections


@mypyc_attr(allow_interpreted_subclasses=True)
class Authority(ABC):
    """Decides what principals may do. The core's port; `security.roles` has the one that is used."""

    @abstractmethod
    def allows(self, principal: str, verb: str, service: bytes, name: bytes) -> bool:
        """Return whether a principal may do this at a service. `name`: the worker concerned; empty: any.

        The answer is remembered until `Principals.use`.
        """

    def quota(self, principal: str) -> Quota | None:
        """Return what a principal may take; None: as much as the broker's own limits allow.

        The answer is remembered until `Principals.use`.
        """
        return None

    def denied(self, principal: str, verb: str, service: bytes, name: bytes) -> None:  # noqa: B027
        """Hear that something was refused."""


class Principal:
    """One principal, what it takes of the broker, and the answers that the authority gave about it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.quota: Quota | None = None
        self.jobs = 0  # unanswered
        self.memory = 0  # bytes they take, as in `Accounting.memory`
        self.stored = 0  # bytes on disk: unfinished durable jobs, results, dead letters
        self.connections = 0
        self.refused = 0  # jobs, for a quota
        self.throttled = False  # some of its clients are held for a quota (`quotas.Quotas`)
        self.tokens = 0.0  # jobs that its rate allows, at the time `refilled`
        self.refilled = LONG_AGO
        self.callable: set[bytes] = set()  # services that it may call at any worker
        self.decisions: dict[tuple[str, bytes, bytes], bool] = {}
        self.peers = 0  # clients and workers that act for it

    def is_needed(self) -> bool:
        """Return whether anything refers to the principal, or is counted for it."""
        return bool(self.peers or self.jobs or self.stored or self.connections)

    def forget(self) -> None:
        """Ask again from now on."""
        self.callable.clear()
        self.decisions.clear()


class Principals:
    """All principals of a broker that have peers, jobs or records."""

    def __init__(self) -> None:
        self.authority: Authority | None = None
        self.known: dict[str, Principal] = {}

    def use(self, authority: Authority | None) -> None:
        """Ask this authority from now on; None: everything is allowed."""
        self.authority = authority
        for principal in self.known.values():
            principal.forget()
            principal.quota = None if authority is None else authority.quota(principal.name)

    def several(self) -> bool:
        """Return whether there may be others that a principal has to leave room for."""
        return self.authority is not None or len(self.known) > 1

    def get(self, name: str) -> Principal:
        """Return the principal of this name."""
        found = self.known.get(name)
        if found is None:
            if len(self.known) >= KNOWN:
                for idle in [one for one in self.known.values() if not one.is_needed()]:
                    del self.known[idle.name]
            found = self.known[name] = Principal(name)
            if self.authority is not None:
                found.quota = self.authority.quota(name)
        return found

    def may(self, principal: Principal, verb: str, service: bytes, name: bytes = b"") -> bool:
        """Return whether a principal may do this. A refusal is reported."""
        allowed = self.allows(principal, verb, service, name)
        if not allowed and self.authority is not None:
            self.authority.denied(principal.name, verb, service, name)
        return allowed

    def allows(self, principal: Principal, verb: str, service: bytes, name: bytes = b"") -> bool:
        """Return whether a principal may do this, for choices: a refusal is not reported."""
        authority = self.authority
        if authority is None:
            return True
        asked = (verb, service, name)
        allowed = principal.decisions.get(asked)
        if allowed is None:
            allowed = authority.allows(principal.name, verb, service, name)
            if len(principal.decisions) >= REMEMBERED:
                principal.forget()
            principal.decisions[asked] = allowed
            if allowed and verb == CALL and not name:
                principal.callable.add(service)
        return allowed

    def may_on_job(self, principal: Principal, verb: str, owner: str, service: bytes) -> bool:
        """Return whether a principal may do this to a job of `owner` at `service`."""
        return self.authority is None or principal.name == owner or self.may(principal, verb, service)
