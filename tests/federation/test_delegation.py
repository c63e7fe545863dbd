"""federation/broker: on whose behalf the jobs of a joined broker are done here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from polydomo.core.principals import ANONYMOUS, DELEGATE, Authority
from polydomo.dialects.wmp.worker import WmpRequest
from polydomo.federation.broker import CLIENTS_MAX, PRINCIPAL_MAX, LendingWorker, RemoteBroker
from polydomo.wire.frames import frame
from tests.support.core import Bench, FakeWorker


class Grants(Authority):
    """Everybody may do everything, but only these may delegate, and only for the service `lent`."""

    def __init__(self, delegates: set[str]) -> None:
        self.delegates = delegates

    def allows(self, principal: str, verb: str, service: bytes, name: bytes) -> bool:
        return verb != DELEGATE or (principal in self.delegates and service == b"lent")


class Above:
    """A broker above, as its jobs arrive at this one."""

    def __init__(self, principal: str = "partner", delegates: tuple[str, ...] = ()) -> None:
        self.bench = Bench()
        self.bench.broker.principals.use(Grants(set(delegates)))
        settings = SimpleNamespace(join=SimpleNamespace(principal=principal))
        extension: Any = SimpleNamespace(
            server=SimpleNamespace(broker=self.bench.broker, settings=settings),
            worker=LendingWorker(lambda role: 1, lambda: 0.5),
            flush=lambda: None,
            returned=0,
        )
        self.remote = RemoteBroker(extension, b"join:above")
        self.workers = {name: self.bench.worker(name) for name in (b"lent", b"other")}
        self._jobs = 0

    def submit(self, headers: dict[str, object], service: bytes = b"lent") -> str:
        """Return the owner of a job that arrives with these headers."""
        worker: FakeWorker = self.workers[service]
        self._jobs += 1
        job = b"%d" % self._jobs
        request = WmpRequest(0, [], headers, b"above", job, service, frame(b"x"))
        self.remote.worker.held[request.address] = request
        self.remote.submit(request)
        (running,) = worker.core.running.values()
        owner = running.client.principal.name
        assert running.client.relay
        worker.answer(frame(b"y"))
        return owner


def test_a_job_belongs_to_the_broker_s_own_principal_unless_that_may_delegate() -> None:
    above = Above()
    assert above.submit({}) == "partner"
    assert above.submit({"principal": "boss"}) == "partner"


def test_it_belongs_to_the_principal_that_a_delegate_carries() -> None:
    above = Above(delegates=("partner",))
    assert above.submit({"principal": "boss"}) == "boss"
    assert above.submit({}) == "partner"
    assert above.submit({"principal": "boss"}, b"other") == "partner"  # not for this service


@pytest.mark.parametrize("name", ["", "x" * (PRINCIPAL_MAX + 1)], ids=len)
def test_an_impossible_name_is_not_believed(name: str) -> None:
    assert Above(delegates=("partner",)).submit({"principal": name}) == "partner"


def test_without_a_setting_the_jobs_are_nobody_s() -> None:
    assert Above(principal=ANONYMOUS).submit({"principal": "boss"}) == ANONYMOUS


def test_a_broker_that_carries_many_principals_takes_bounded_memory() -> None:
    above = Above(delegates=("partner",))
    for number in range(3 * CLIENTS_MAX):
        assert above.submit({"principal": f"user-{number}"}) == f"user-{number}"
    assert len(above.bench.broker.clients) <= CLIENTS_MAX
    above.remote.disconnect()
    assert len(above.bench.broker.clients) == 0
