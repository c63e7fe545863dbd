"""Decisions by the table of access (`services.access`), for the broker's own services and for HTTP.

Each door asks once, before anything is done: `Authorizer.admit`. An administrative act is recorded before it is done;
one that cannot be recorded is refused. Lists get a `View`, which tells the rows that the caller may see.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from polydomo.core.broker import Broker
from polydomo.core.model import Job, Worker
from polydomo.core.names import parse_name, printable
from polydomo.core.ports import ActLog
from polydomo.core.principals import CALL, EVERYTHING, OBSERVE, READ, Principal, Principals
from polydomo.core.tracked_job import TrackedJob
from polydomo.deferred import Deferred, deferring
from polydomo.services import access
from polydomo.services.access import Rule

# What a verb is asked for: a service, and a worker or another name (empty: any).
AccessObject = tuple[bytes, bytes]


class AccessDenied(Exception):
    """A request that its principal may not make. `plain`: the answer in protocols without failures, if it is not the
    text of this error."""

    def __init__(
        self, principal: str, verb: str, service: bytes, name: bytes = b"", plain: bytes | None = None
    ) -> None:
        at = f" at {printable(name)}" if name else ""
        super().__init__(f"{principal} may not {verb} {printable(service)}{at}")
        self.principal = principal
        self.plain = plain


class UnknownObject(ValueError):
    """A job that does not exist, or of which the caller may not know."""


class NotRecorded(ValueError):
    """An administrative act that could not be recorded, and was not done."""


class Authorizer:
    """Decides for one broker. The owner sets the attributes that it has."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.principals = broker.principals
        # Returns the owner and the service of a stored job.
        self.find_stored: Callable[[str], Awaitable[tuple[str, bytes] | None]] | None = None
        self.advance: Callable[[], None] = lambda: None  # sets the core's time after a wait

    def view(self, caller: Principal) -> View:
        """Return what a principal sees in lists."""
        return View(self.principals, caller)

    def admit(
        self, caller: Principal, rule: Rule, action: str, given: Mapping[str, Any], address: str = ""
    ) -> Deferred[None] | None:
        """Return if a principal may do this: at once, or deferred while the disk is read or written.

        `given` are the request's arguments. Raises AccessDenied, or UnknownObject for a job that the caller may not
        know.
        """
        if rule.about in access.NOT_ASKED:
            return None
        if rule.about == access.JOB:
            if self.principals.authority is None:
                return None  # all jobs have one owner
            return self._admit_to_job(caller, rule, action, str(given[rule.argument]), address)
        shown = self._require_all(caller, rule, given)
        if self.broker.acts is None or not rule.is_act or not shown:
            return None
        return self._admit_recorded(self.broker.acts, caller, rule, action, given, address, shown)

    @deferring
    async def _admit_recorded(
        self,
        acts: ActLog,
        caller: Principal,
        rule: Rule,
        action: str,
        given: Mapping[str, Any],
        address: str,
        shown: str,
    ) -> None:
        try:
            await _recorded(acts, caller.name, rule.verbs[0], action, shown, address)
        except NotRecorded:
            if not rule.reads:
                raise
        self._require_all(caller, rule, given)  # workers may have come, and roles may have changed

    @deferring
    async def _admit_to_job(self, caller: Principal, rule: Rule, action: str, uid: str, address: str) -> None:
        found = self.broker.jobs.owner_of(uid)
        if found is None and self.find_stored is not None and "\0" not in uid:
            found = await self.find_stored(uid)
            self.advance()
        # The answer to both is the same: whether a job exists is nobody else's business.
        if found is None or not self.broker.jobs.may(caller, rule.verbs[0], *found):
            raise UnknownObject(f"no job {uid!r}")
        acts = self.broker.acts
        if acts is not None and rule.is_act and found[0] != caller.name:
            await _recorded(acts, caller.name, rule.verbs[0], action, job_target(uid, found[0]), address)

    def _objects(self, caller: Principal, rule: Rule, given: Mapping[str, Any]) -> list[AccessObject]:
        """Return what the rule's verbs are asked for."""
        if rule.fixed:
            return [(rule.fixed, _bytes(given.get(rule.name)) if rule.name else b"")]
        if rule.about == access.SERVICE:
            return [(_bytes(given.get(rule.argument)), b"")]
        if rule.about == access.INVENTORY and self._is_own(caller, given.get(rule.argument)):
            return []
        if rule.about == access.WORKERS:
            workers = matching_workers(
                self.broker, given.get("worker", given.get("name")), given.get("service")
            )
            found = [(one.name, worker.name) for worker in workers for one in worker.services]
            if found:
                return found
        return [(EVERYTHING, b"")]

    def _is_own(self, caller: Principal, name: object) -> bool:
        """Return whether an inventory is a principal's own: of its name, or of one of its connected workers."""
        return name == caller.name or any(
            worker.principal is caller and printable(worker.name) == name for worker in self.broker.workers
        )

    def _require_all(self, caller: Principal, rule: Rule, given: Mapping[str, Any]) -> str:
        """Raise AccessDenied unless the principal may do this to every object; return the objects as text."""
        objects = self._objects(caller, rule, given)
        for service, name in objects:
            self._require(caller, rule, service, name)
        return ", ".join(
            printable(service) + (f"@{printable(name)}" if name else "") for service, name in objects
        )

    def _require(self, caller: Principal, rule: Rule, service: bytes, name: bytes) -> None:
        """Raise AccessDenied unless the principal has one of the rule's verbs for the object.

        Only the last verb is reported.
        """
        *others, last = rule.verbs
        if any(self.principals.allows(caller, verb, service, name) for verb in others):
            return
        if not self.principals.may(caller, last, service, name):
            raise AccessDenied(caller.name, " or ".join(rule.verbs), service, name)


class View:
    """What one principal sees: its own jobs, clients and workers, and what it may observe."""

    __slots__ = ("_principals", "caller")

    def __init__(self, principals: Principals, caller: Principal) -> None:
        self._principals = principals
        self.caller = caller

    def everything(self) -> bool:
        """Return whether the principal may observe all services."""
        return self._principals.allows(self.caller, OBSERVE, EVERYTHING)

    def service(self, name: bytes, *others: str) -> bool:
        """Return whether the principal may observe a service, or do one of the other verbs there."""
        allows = self._principals.allows
        return any(allows(self.caller, verb, name) for verb in (OBSERVE, *others))

    def may_call_some(self, service: bytes, workers: Iterable[Worker]) -> bool:
        """Return whether the principal may observe or call a service, at one of these workers at least."""
        return self.service(service, CALL) or any(
            self._principals.allows(self.caller, CALL, service, worker.name) for worker in workers
        )

    def event(self, service: bytes, worker: bytes) -> bool:
        """Return whether the principal may hear of an event of a worker."""
        return self._principals.allows(self.caller, OBSERVE, service, worker)

    def worker(self, worker: Worker, service: bytes) -> bool:
        """Return whether the principal sees that a worker offers a service."""
        return worker.principal is self.caller or self.event(service, worker.name)

    def owned(self, owner: str) -> bool:
        """Return whether the principal sees the clients of `owner`."""
        return owner == self.caller.name or self.everything()

    def job(self, owner: str, service: bytes) -> bool:
        """Return whether the principal sees a job of `owner` in lists."""
        return owner == self.caller.name or self._principals.allows(self.caller, OBSERVE, service)

    def body(self, owner: str, service: bytes) -> bool:
        """Return whether the principal may read the request and the result of a job of `owner`."""
        return owner == self.caller.name or self._principals.allows(self.caller, READ, service)


def _recorded(
    acts: ActLog, principal: str, verb: str, action: str, target: str, address: str
) -> Deferred[None]:
    """Record an act. Fails with NotRecorded."""
    result: Deferred[None] = Deferred()

    def then(reason: str) -> None:
        if reason:
            result.fail(NotRecorded(f"{action} is refused, because it cannot be recorded: {reason}"))
        else:
            result.settle(None)

    acts.record(principal, verb, action, target, address, then)
    return result


def job_target(uid: str, owner: str) -> str:
    """Return a job as it stands in records of acts."""
    return f"job {uid} of {owner}"


def owner_of(job: Job) -> str:
    """Return the name of the principal that a job belongs to."""
    return job.owner() if isinstance(job, TrackedJob) else job.client.principal.name


def matching_workers(broker: Broker, name: object, service: object) -> list[Worker]:
    """Return the workers with this name and of this service, without the broker's own; None matches all."""
    return [
        worker
        for worker in broker.workers
        if not worker.internal
        and name in (None, printable(worker.name))
        and (service is None or service in [printable(offered.name) for offered in worker.services])
    ]


def _bytes(value: object) -> bytes:
    """Return a service's name as it stands in arguments."""
    return value if isinstance(value, bytes) else parse_name(value if isinstance(value, str) else "")
