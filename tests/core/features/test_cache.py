"""Memoised services: one execution for the same request, however often and however many at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from polydomo.core import failure as reasons
from polydomo.core.features.cache import ENTRY, Memo, digest_of, unpacked
from polydomo.core.model import Job
from polydomo.core.policy import Policy
from polydomo.core.states import DONE, REMEMBERING
from polydomo.core.tracked_job import Options, TrackedJob
from tests.core.features.test_durability import FakeKeeper
from tests.support.core import Bench, FakeClient, check_empty


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.broker.services.policies[b"memo"] = Policy(memo=True, memo_ttl=100.0, memo_bytes=4096)
    return bench


class Disk(FakeKeeper):
    """A disk with answers on it, which is read when the test says so."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.kept: dict[tuple[bytes, bytes], tuple[bytes, float]] = {}
        self.questions: list[Callable[[], None]] = []
        self.finished: list[str] = []

    def finish(self, job: Job) -> None:
        super().finish(job)
        assert isinstance(job, TrackedJob)
        self.finished.append(job.uid)

    def memo(self, service: bytes, digest: bytes, then: Callable[[bytes | None, float], None]) -> None:
        def answer() -> None:
            value, until = self.kept.get((service, digest), (None, 0.0))
            then(value, until)

        self.questions.append(answer)

    def keep_memo(self, service: bytes, digest: bytes, value: bytes, until: float) -> None:
        self.kept[service, digest] = (value, until)

    def forget_memo(self, service: bytes, digest: bytes) -> None:
        for name in list(self.kept):
            if name[0] == service and digest in (b"", name[1]):
                del self.kept[name]

    def read_all(self) -> None:
        while self.questions:
            self.questions.pop(0)()


def over(bench: Bench) -> None:
    """When everybody has left, nothing is left of it but the answers."""
    for worker in list(bench.broker.workers):
        bench.broker.leave(worker, "test")
    check_empty(bench.broker)
    assert not bench.broker._cache.in_flight


def shown(bench: Bench) -> dict[str, object]:
    return bench.broker.control.cache_of(b"memo").show()


def test_a_repeated_request_is_answered_without_a_worker(bench: Bench) -> None:
    client, worker = bench.client(), bench.worker(b"memo")
    client.ask(b"memo", b"2+2")
    bench.broker.advance(3.0)
    worker.answer(b"4")
    other = bench.client()
    other.ask(b"memo", b"2+2")
    assert client.finals() == other.finals() == [b"4"]
    assert len(worker.jobs) == 1
    assert shown(bench) == {
        "entries": 1,
        "bytes": 1 + ENTRY,
        "hits": 1,
        "joined": 0,
        "misses": 1,
        "saved_seconds": 3.0,
    }
    over(bench)


def test_another_request_and_another_service_are_something_else(bench: Bench) -> None:
    client, worker = bench.client(), bench.worker(b"memo", b"plain")
    for service, body in ((b"memo", b"a"), (b"memo", b"b"), (b"plain", b"a"), (b"plain", b"a")):
        client.ask(service, body)
        worker.answer(service + body)
    assert client.finals() == [b"memoa", b"memob", b"plaina", b"plaina"]
    assert len(worker.jobs) == 4


def test_a_thousand_at_once_run_once(bench: Bench) -> None:
    clients = [bench.client() for _ in range(1000)]
    for client in clients:
        client.ask(b"memo", b"same")
    worker = bench.worker(b"memo")
    bench.broker.advance(1.0)
    worker.answer(b"once")
    assert len(worker.jobs) == 1
    assert all(client.finals() == [b"once"] for client in clients)
    assert shown(bench)["joined"] == 999
    assert shown(bench)["saved_seconds"] == 999.0
    over(bench)


def test_answers_are_good_for_their_time_only(bench: Bench) -> None:
    client, worker = bench.client(), bench.worker(b"memo")
    client.ask(b"memo", b"what time is it")
    worker.answer(b"one")
    bench.at(99.0, worker)
    client.ask(b"memo", b"what time is it")
    bench.at(101.0, worker)
    client.ask(b"memo", b"what time is it")
    worker.answer(b"two")
    assert client.finals() == [b"one", b"one", b"two"]


def test_the_least_recently_used_answers_make_room(bench: Bench) -> None:
    client, worker = bench.client(), bench.worker(b"memo")
    for number in range(8):  # 800 + 200 bytes each: four fit
        client.ask(b"memo", b"%d" % number)
        worker.answer(b"x" * 800)
        client.ask(b"memo", b"0")  # stays, as it is asked for
    assert shown(bench)["entries"] == 4
    assert shown(bench)["bytes"] == bench.broker._cache.held == 4 * (800 + ENTRY)
    assert len(worker.jobs) == 8
    client.ask(b"memo", b"1")
    assert len(worker.jobs) == 9


def test_an_answer_too_large_for_the_shelf_is_not_kept(bench: Bench) -> None:
    client, worker = bench.client(), bench.worker(b"memo")
    for _ in range(2):
        client.ask(b"memo", b"big")
        worker.answer(b"x" * 1024)
    assert len(worker.jobs) == 2
    assert shown(bench)["entries"] == 0


def test_all_services_together_have_a_bound() -> None:
    bench = Bench()
    bench.broker.services.default_policy = Policy(memo=True)
    bench.broker._cache.memory = 10 * (100 + ENTRY)
    client = bench.client()
    for number in range(30):
        worker = bench.worker(b"service-%d" % (number % 3))
        client.ask(b"service-%d" % (number % 3), b"%d" % number)
        worker.answer(b"x" * 100)
        worker.leave()
    assert bench.broker._cache.held == 10 * (100 + ENTRY)
    assert sum(len(shelf.memos) for shelf in bench.broker.control.caches().values()) == 10


def test_failures_and_answers_in_pieces_are_not_kept(bench: Bench) -> None:
    client, worker = bench.client(), bench.worker(b"memo")
    client.ask(b"memo", b"q")
    worker.fail()
    client.ask(b"memo", b"q")
    worker.partial()
    worker.answer(b"last")
    client.ask(b"memo", b"q")
    worker.answer(b"whole")
    assert client.reasons() == [reasons.WORKER_ERROR]
    assert client.finals() == [b"last", b"whole"]


def test_who_waited_for_a_failure_shares_it(bench: Bench) -> None:
    first, second, worker = bench.client(), bench.client(), bench.worker(b"memo")
    first.ask(b"memo", b"q")
    second.ask(b"memo", b"q")
    worker.fail()
    assert first.reasons() == second.reasons() == [reasons.WORKER_ERROR]
    over(bench)


def test_one_who_cancels_does_not_speak_for_the_others(bench: Bench) -> None:
    first, second, third = bench.client(), bench.client(), bench.client()
    worker, helper = bench.worker(b"memo"), bench.worker(b"memo")
    job = first.ask(b"memo", b"q")
    second.ask(b"memo", b"q")
    third.ask(b"memo", b"q")
    assert job is not None
    bench.broker.cancel(job)
    assert first.reasons() == [reasons.CANCELLED]
    assert len(worker.jobs) == 1
    helper.answer(b"late but right")
    assert second.finals() == third.finals() == [b"late but right"]
    worker.answer(b"too late")
    over(bench)


def test_one_who_waits_may_cancel(bench: Bench) -> None:
    first, second, worker = bench.client(), bench.client(), bench.worker(b"memo")
    first.ask(b"memo", b"q")
    waiting = second.ask(b"memo", b"q")
    assert waiting is not None
    assert waiting.state == REMEMBERING
    bench.broker.cancel(waiting)
    worker.answer(b"a")
    assert second.reasons() == [reasons.CANCELLED]
    assert first.finals() == [b"a"]
    over(bench)


def test_the_leader_is_given_to_another_worker_when_its_own_is_lost(bench: Bench) -> None:
    first, second, worker = bench.client(), bench.client(), bench.worker(b"memo")
    first.ask(b"memo", b"q")
    second.ask(b"memo", b"q")
    worker.leave()
    other = bench.worker(b"memo")
    other.answer(b"a")
    assert first.finals() == second.finals() == [b"a"]


def test_forget_one_forget_all(bench: Bench) -> None:
    client, worker = bench.client(), bench.worker(b"memo")
    for body in (b"a", b"b"):
        client.ask(b"memo", body)
        worker.answer(b"old")
    assert bench.broker.control.forget_results(b"memo", b"a") == 1
    client.ask(b"memo", b"a")
    worker.answer(b"new")
    client.ask(b"memo", b"b")
    assert client.finals() == [b"old", b"old", b"new", b"old"]
    assert bench.broker.control.forget_results(b"memo") == 2
    assert bench.broker.control.forget_results(b"memo") == 0
    assert bench.broker._cache.held == 0


def test_what_is_forgotten_while_it_is_under_way_is_not_kept(bench: Bench) -> None:
    client, worker = bench.client(), bench.worker(b"memo")
    client.ask(b"memo", b"q")
    bench.broker.control.forget_results(b"memo")
    worker.answer(b"stale")
    client.ask(b"memo", b"q")
    worker.answer(b"fresh")
    assert client.finals() == [b"stale", b"fresh"]


def test_keys_and_memos_go_together(bench: Bench) -> None:
    """What a key says comes first: it means one job, although others may ask the same."""
    client, worker = bench.client(), bench.worker(b"memo")
    for key, body in ((b"k1", b"q"), (b"k1", b"q"), (b"k2", b"q")):
        bench.broker.submit(client.core, b"memo", body, b"", Options(key=key))
    assert len(worker.jobs) == 1
    worker.answer(b"a")
    client.ask(b"memo", b"q")
    bench.broker.submit(client.core, b"memo", b"q", b"", Options(key=b"k3"))
    assert client.finals() == [b"a"] * 5
    assert len(worker.jobs) == 1
    over(bench)


def test_the_broker_stops_while_some_wait(bench: Bench) -> None:
    first, second = bench.client(), bench.client()
    first.ask(b"memo", b"q")
    second.ask(b"memo", b"q")
    bench.broker.close()
    assert first.reasons() == second.reasons() == [reasons.DRAINING]
    over(bench)


class TestDisk:
    @pytest.fixture
    def disk(self, bench: Bench) -> Disk:
        disk = Disk(bench)
        bench.broker.use_store(disk)
        return disk

    def test_an_answer_of_before_the_restart(self, bench: Bench, disk: Disk) -> None:
        client, worker = bench.client(), bench.worker(b"memo")
        client.ask(b"memo", b"q")
        disk.read_all()
        bench.broker.advance(2.0)
        worker.answer(b"a")
        bench.broker._cache.services.clear()  # nothing in memory
        worker.leave()
        others = [bench.client(), bench.client()]
        for other in others:
            other.ask(b"memo", b"q")
        assert len(disk.questions) == 1
        disk.read_all()
        assert [other.finals() for other in others] == [[b"a"], [b"a"]]
        assert shown(bench)["hits"] == 2
        assert shown(bench)["saved_seconds"] == 4.0
        over(bench)

    def test_cancelled_while_the_disk_is_read(self, bench: Bench, disk: Disk) -> None:
        client, other, worker = bench.client(), bench.client(), bench.worker(b"memo")
        job = client.ask(b"memo", b"q")
        other.ask(b"memo", b"q")
        assert job is not None
        bench.broker.cancel(job)
        disk.read_all()
        worker.answer(b"a")
        assert client.reasons() == [reasons.CANCELLED]
        assert other.finals() == [b"a"]
        over(bench)

    def test_the_disk_is_not_asked_when_memory_has_it_all(self, bench: Bench, disk: Disk) -> None:
        client, worker = bench.client(), bench.worker(b"memo")
        bench.broker.control.cache_of(b"memo").complete = True
        for number in range(10):  # more than fit in memory
            client.ask(b"memo", b"%d" % number)
            disk.read_all() if number > 4 else None
            worker.answer(b"x" * 800)
        assert not bench.broker.control.cache_of(b"memo").complete
        assert len(worker.jobs) == 10

    def test_a_durable_repeat_with_an_id_is_recorded_too(self, bench: Bench, disk: Disk) -> None:
        bench.broker.services.policies[b"memo"] = Policy(memo=True, durable=True)
        client, worker = bench.client(), bench.worker(b"memo")
        done: list[Job] = []
        for uid in ("one", "two"):
            job = bench.broker.submit(client.core, b"memo", b"q", b"", Options(uid=uid))
            assert job is not None
            done.append(job)
            disk.commit()
            disk.read_all()
            if worker.holds:
                worker.answer(b"a")
            disk.commit()
        assert [job.state for job in done] == [DONE, DONE]
        assert disk.finished == ["one", "two"]
        assert client.finals() == [b"a", b"a"]
        assert len(worker.jobs) == 1
        over(bench)

    def test_a_durable_repeat_with_a_key_is_recorded_under_it(self, bench: Bench, disk: Disk) -> None:
        bench.broker.services.policies[b"memo"] = Policy(memo=True, durable=True)
        client, worker = bench.client(), bench.worker(b"memo")
        for key in (b"k1", b"k2"):
            bench.broker.submit(client.core, b"memo", b"q", b"", Options(key=key))
            disk.commit()
            disk.read_all()
            if worker.holds:
                worker.answer(b"a")
            disk.commit()
        assert client.finals() == [b"a", b"a"]
        assert len(disk.finished) == 2
        assert len(worker.jobs) == 1
        over(bench)

    def test_a_durable_repeat_without_one_needs_no_record(self, bench: Bench, disk: Disk) -> None:
        bench.broker.services.policies[b"memo"] = Policy(memo=True, durable=True)
        client, worker = bench.client(), bench.worker(b"memo")
        client.ask(b"memo", b"q")
        disk.commit()
        disk.read_all()
        worker.answer(b"a")
        disk.commit()
        client.ask(b"memo", b"q")
        assert not disk.added
        assert client.finals() == [b"a", b"a"]


def test_an_answer_comes_back_from_the_disk_as_it_was() -> None:
    memo = unpacked(Memo(b"\x01\x01a\x00\x01b", b"worker", 1.5, 0.0).packed(), 7.0)
    assert (memo.body, memo.worker, memo.took, memo.until) == (b"\x01\x01a\x00\x01b", b"worker", 1.5, 7.0)


def test_watching_a_job_of_somebody_else(bench: Bench) -> None:
    owner, watcher, worker = bench.client(), bench.client(), bench.worker(b"plain")
    job = bench.broker.submit(owner.core, b"plain", b"q", b"", Options(uid="u"))
    assert job is not None
    watching = bench.broker.jobs.watch(watcher.core, job)
    gone = bench.broker.jobs.watch(FakeClient(bench.broker, b"impatient").core, job)
    bench.broker.jobs.unwatch(gone)
    worker.partial(b"p")
    worker.answer(b"a")
    assert owner.heard == [("partial", job.id, b"p"), ("final", job.id, b"a")]
    assert watcher.heard == [("partial", watching.id, b"p"), ("final", watching.id, b"a")]
    assert gone.client.port.heard == []  # type: ignore[attr-defined]
    over(bench)


def test_principals_share_answers_unless_they_are_kept_apart(bench: Bench) -> None:
    bench.broker.services.policies[b"apart"] = Policy(memo=True, memo_scope="principal")
    for service, runs in ((b"memo", 1), (b"apart", 2)):
        worker = bench.worker(service)
        clients = [bench.client(principal=name) for name in ("one", "two", "one")]
        for client in clients:
            client.ask(service, b"2+2")
            while worker.holds:
                worker.answer(b"4")
        assert [client.finals() for client in clients] == [[b"4"]] * 3
        assert len(worker.jobs) == runs


def test_requests_of_two_principals_at_once_are_two_where_answers_are_kept_apart(bench: Bench) -> None:
    bench.broker.services.policies[b"apart"] = Policy(memo=True, memo_scope="principal")
    worker = bench.worker(b"apart")
    one, two = bench.client(principal="one"), bench.client(principal="two")
    one.ask(b"apart", b"2+2")
    two.ask(b"apart", b"2+2")
    worker.answer(b"for one")
    worker.answer(b"for two")
    assert (one.finals(), two.finals()) == ([b"for one"], [b"for two"])


def test_forgetting_a_request_forgets_it_for_every_principal(bench: Bench) -> None:
    bench.broker.services.policies[b"apart"] = Policy(memo=True, memo_scope="principal")
    worker = bench.worker(b"apart")
    for name in ("one", "two"):
        bench.client(principal=name).ask(b"apart", b"2+2")
        worker.answer(b"4")
    assert bench.broker.control.forget_results(b"apart", b"2+2") == 2
    bench.client(principal="one").ask(b"apart", b"2+2")
    assert len(worker.jobs) == 3


def test_no_body_of_one_principal_looks_like_another_principals() -> None:
    digests = {digest_of(b"ab"), digest_of(b"b", "a"), digest_of(b"", "ab"), digest_of(b"\0\0\0\1ab")}
    assert len(digests) == 4
