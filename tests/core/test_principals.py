"""core: what principals may do is asked at one place, and remembered until it changes (DESIGN §Security)."""

from __future__ import annotations

from polydomo.core.failure import DENIED
from polydomo.core.principals import CALL, READ, REMEMBERED, SERVE, Authority
from polydomo.core.targets import ALL, NAMES, Target
from polydomo.core.tracked_job import Options
from tests.support.core import Bench, check_empty, internal


class Grants(Authority):
    """Allows what is in `granted`: principal, verb, service, and a worker's name or none."""

    def __init__(self, *granted: tuple[str, str, bytes] | tuple[str, str, bytes, bytes]) -> None:
        self.granted = {(*grant, b"")[:4] for grant in granted}
        self.asked = 0
        self.refused: list[tuple[str, str, bytes, bytes]] = []

    def allows(self, principal: str, verb: str, service: bytes, name: bytes) -> bool:
        self.asked += 1
        return not self.granted.isdisjoint(
            {(principal, verb, service, name), (principal, verb, service, b"")}
        )

    def denied(self, principal: str, verb: str, service: bytes, name: bytes) -> None:
        self.refused.append((principal, verb, service, name))


CALLS_A = ("ann", CALL, b"a")
SERVES_A = ("bob", SERVE, b"a")


def bench_with(*granted: tuple[str, str, bytes] | tuple[str, str, bytes, bytes]) -> tuple[Bench, Grants]:
    bench, grants = Bench(), Grants(*granted)
    bench.broker.principals.use(grants)
    return bench, grants


def named(*names: bytes) -> Options:
    return Options(target=Target(NAMES, list(names)))


def test_a_job_for_a_service_that_is_not_granted_is_refused_and_reported() -> None:
    bench, grants = bench_with(CALLS_A, SERVES_A)
    worker, ann = bench.worker(b"a", principal="bob"), bench.client(principal="ann")
    for options in (None, Options(durable=False), Options(key=b"k")):
        assert ann.ask(b"b", options=options) is None
    assert ann.reasons() == [DENIED] * 3
    assert grants.refused == [("ann", CALL, b"b", b"")] * 3
    ann.ask(b"a")
    assert worker.answer() == 0
    assert len(ann.finals()) == 1
    worker.leave()
    check_empty(bench.broker)


def test_an_answer_is_remembered_until_the_authority_changes() -> None:
    bench, grants = bench_with(CALLS_A, SERVES_A)
    worker, ann = bench.worker(b"a", principal="bob"), bench.client(principal="ann")
    before = grants.asked
    for _ in range(10):
        ann.ask(b"a")
        worker.answer()
    assert grants.asked == before + 1
    bench.broker.principals.use(Grants(SERVES_A))
    assert ann.ask(b"a") is None
    bench.broker.principals.use(None)
    assert ann.ask(b"a") is not None


def test_names_that_a_client_makes_up_are_not_remembered_for_ever() -> None:
    bench, _ = bench_with(CALLS_A)
    ann = bench.client(principal="ann")
    for number in range(REMEMBERED + 10):
        ann.ask(b"%d" % number)
    principal = bench.broker.principals.get("ann")
    assert len(principal.decisions) <= REMEMBERED


def test_a_job_for_named_workers_needs_the_grant_for_each_of_them() -> None:
    bench, grants = bench_with(SERVES_A, (*CALLS_A, b"w1"), (*CALLS_A, b"w2"))
    ann = bench.client(principal="ann")
    for name in (b"w1", b"w2", b"w3"):
        bench.worker(b"a", name=name, principal="bob")
    assert ann.ask(b"a", options=named(b"w1")) is not None
    assert ann.ask(b"a", options=named(b"w1", b"w2")) is not None
    assert ann.ask(b"a", options=named(b"w1", b"w3")) is None
    assert ann.ask(b"a") is None  # any worker would do, w3 too
    assert [refused[3] for refused in grants.refused] == [b"w3", b""]


def test_a_job_for_all_services_goes_to_those_that_are_granted() -> None:
    bench, grants = bench_with(CALLS_A, SERVES_A, ("bob", SERVE, b"b"))
    ann = bench.client(principal="ann")
    granted, other = bench.worker(b"a", principal="bob"), bench.worker(b"b", principal="bob")
    ann.ask(b"all", options=Options(uid="u", target=Target(ALL, everywhere=True)))
    assert [len(worker.given) for worker in (granted, other)] == [1, 0]
    assert grants.refused == []


def test_a_worker_may_offer_only_what_is_granted_to_it() -> None:
    bench, grants = bench_with(SERVES_A, ("eve", SERVE, b"b", b"e1"))
    bob, eve = bench.worker(principal="bob"), bench.worker(name=b"e1", principal="eve")
    assert [bob.register(b"a"), bob.register(b"b"), eve.register(b"a"), eve.register(b"b")] == [
        True,
        False,
        False,
        True,
    ]
    assert not bench.worker(name=b"e2", principal="eve").register(b"b")
    assert [refused[:3] for refused in grants.refused] == [
        ("bob", SERVE, b"b"),
        ("eve", SERVE, b"a"),
        ("eve", SERVE, b"b"),
    ]
    assert bench.broker.why_refused(bob.core, b"b") == "denied: bob may not serve b"
    assert bench.broker.why_refused(bob.core, b"mmi.b") == "a name that workers may not register"


def test_the_brokers_own_workers_and_services_need_no_grant() -> None:
    bench, grants = bench_with()
    own = internal(bench.broker)
    assert own.register(b"mmi.x")
    ann = bench.client(principal="ann")
    assert ann.ask(b"mmi.x") is not None
    own.answer()
    assert len(ann.finals()) == 1
    bench.broker.workers.dismiss_denied()
    assert own.core in bench.broker.workers
    assert grants.refused == []


def test_workers_that_lost_a_grant_leave_and_their_jobs_go_to_those_that_have_it() -> None:
    serves = [(who, SERVE, name) for who in ("bob", "eve") for name in (b"a", b"b")]
    bench, _ = bench_with(CALLS_A, *serves)
    ann = bench.client(principal="ann")
    lost = [bench.worker(b"a", b"b", principal="bob"), bench.worker(b"a", principal="bob")]
    ann.ask(b"a")
    ann.ask(b"a")
    idle = bench.worker(b"a", principal="bob")
    stays = bench.worker(b"a", b"b", principal="eve")
    bench.broker.principals.use(Grants(CALLS_A, ("bob", SERVE, b"b"), *serves[2:]))
    bench.broker.workers.dismiss_denied()
    assert [len(worker.dismissals) for worker in [*lost, idle, stays]] == [1, 1, 1, 0]
    assert idle.given == []
    assert lost[0].dismissals[0].startswith("denied: ")
    assert list(bench.broker.workers) == [stays.core]
    assert len(stays.given) == 1
    stays.answer()
    stays.answer()
    assert len(ann.finals()) == 2
    assert lost[0].register(b"b")  # what is still granted


def test_a_worker_forwards_only_to_services_that_it_may_call_itself() -> None:
    bench, grants = bench_with(
        CALLS_A, SERVES_A, ("bob", CALL, b"c"), ("bob", SERVE, b"b"), ("bob", SERVE, b"c")
    )
    worker, ann = bench.worker(b"a", principal="bob"), bench.client(principal="ann")
    other, third = bench.worker(b"b", principal="bob"), bench.worker(b"c", principal="bob")
    ann.ask(b"a")
    worker.forward(b"b")
    assert ann.reasons() == [DENIED]
    assert grants.refused == [("bob", CALL, b"b", b"")]
    ann.ask(b"a")
    worker.forward(b"c")
    third.answer()
    assert len(ann.finals()) == 1
    assert other.given == []


def test_a_job_of_another_principal_is_unknown_unless_its_service_is_granted() -> None:
    bench, _ = bench_with(CALLS_A, ("reader", READ, b"a"))
    job = bench.client(principal="ann").ask(b"a", options=Options(uid="u1"))
    assert job is not None
    jobs, principals = bench.broker.jobs, bench.broker.principals
    found = [jobs.job_for(principals.get(name), "u1", READ) for name in ("ann", "reader", "eve")]
    assert found == [job, job, None]
