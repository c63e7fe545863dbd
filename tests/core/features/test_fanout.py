"""Jobs for one worker, for some, for all of them."""

from __future__ import annotations

import pytest

from polydomo.core import failure as reasons
from polydomo.core.failure import Failure
from polydomo.core.pieces import Piece, pack, unpack
from polydomo.core.policy import Policy
from polydomo.core.principals import ANONYMOUS
from polydomo.core.targets import ALL, EACH, NAMES, Assignment, Target
from polydomo.core.tracked_job import Options
from tests.core.listening import Asked, Keeping, Listener
from tests.support.core import Bench, check_empty
from tests.support.invariants import check


@pytest.fixture
def bench() -> Bench:
    return Bench()


def one(name: bytes) -> Options:
    return Options(uid="u", target=Target(NAMES, [name], single=True))


def everybody(uid: str = "u", **options: float) -> Options:
    return Options(uid=uid, target=Target(ALL), **options)  # type: ignore[arg-type]


def test_a_job_for_one_worker_reaches_it_and_no_other(bench: Bench) -> None:
    first, second = bench.worker(b"s", name=b"w1"), bench.worker(b"s", name=b"w2")
    client = Listener(bench.broker, b"c")
    client.send(b"s", one(b"w2"))
    assert (first.jobs, len(second.jobs)) == ([], 1)
    second.answer(b"mine")
    assert client.kinds() == ["accepted", "assigned", "final"]
    assert client.of("assigned") == [[b"w2"]]
    check(bench.broker)


def test_it_waits_for_a_worker_that_is_busy_though_others_are_idle(bench: Bench) -> None:
    busy = bench.worker(b"s", name=b"w1")
    bench.client().ask(b"s")
    idle = bench.worker(b"s", name=b"w2")
    client = Listener(bench.broker, b"c")
    client.send(b"s", one(b"w1"))
    check(bench.broker)
    assert idle.jobs == []
    busy.answer()
    assert len(busy.jobs) == 2
    check(bench.broker)


def test_it_waits_for_a_worker_that_is_not_there_yet(bench: Bench) -> None:
    bench.worker(b"s", name=b"w1")
    client = Listener(bench.broker, b"c")
    client.send(b"s", one(b"w9"))
    late = bench.worker(b"s", name=b"w9")
    assert len(late.jobs) == 1


def test_and_expires_if_it_never_comes(bench: Bench) -> None:
    client = Listener(bench.broker, b"c")
    job = client.send(b"s", Options(uid="u", wait=5.0, target=Target(NAMES, [b"w9"], single=True)))
    bench.at(4.9)
    assert client.reasons() == []
    bench.at(5.1)
    assert client.reasons() == [reasons.EXPIRED]
    assert job is not None
    assert not bench.broker.services


def test_a_worker_takes_turns_between_its_own_jobs_and_everybodys(bench: Bench) -> None:
    worker = bench.worker(b"s", name=b"w1")
    client = Listener(bench.broker, b"c")
    client.ask(b"s", b"running")
    for number in range(3):
        client.ask(b"s", b"any%d" % number)
        client.send(
            b"s", Options(uid=f"u{number}", target=Target(NAMES, [b"w1"], single=True)), b"own%d" % number
        )
    for _ in range(7):
        worker.answer()
    assert worker.bodies == [b"running", b"own0", b"any0", b"own1", b"any1", b"own2", b"any2"]


def test_a_worker_that_comes_back_gets_what_it_lost(bench: Bench) -> None:
    worker, other = bench.worker(b"s", name=b"w1"), bench.worker(b"s", name=b"w2")
    client = Listener(bench.broker, b"c")
    client.send(b"s", one(b"w1"))
    worker.leave()
    assert other.jobs == []
    check(bench.broker)
    again = bench.worker(b"s", name=b"w1")
    again.answer(b"at last")
    assert client.finals() == [b"at last"]


def test_but_not_one_whose_name_was_made_up(bench: Bench) -> None:
    worker = bench.worker(b"s", name=b"\0abcd")
    worker.core.anonymous = True
    bench.client().ask(b"s")
    client = Listener(bench.broker, b"c")
    client.send(b"s", one(b"\0abcd"))
    worker.leave()
    assert client.reasons() == [reasons.WORKER_GONE]


def test_a_job_for_all_is_gathered_from_each(bench: Bench) -> None:
    workers = [bench.worker(b"s", name=b"w%d" % number) for number in range(3)]
    client = Listener(bench.broker, b"c")
    client.send(b"s", everybody())
    assert client.of("assigned") == [[b"w0", b"w1", b"w2"]]
    for worker in reversed(workers):
        check(bench.broker)
        worker.answer(b"of " + worker.core.name)
    assert client.of("gathered") == [(b"w2", b"of w2"), (b"w1", b"of w1"), (b"w0", b"of w0")]
    assert client.whole() == {b"w0": b"of w0", b"w1": b"of w1", b"w2": b"of w2"}
    assert client.kinds()[-1] == "final"
    assert (bench.broker.accounting.totals.done, bench.broker.services[b"s"].counts.done) == (1, 1)
    check(bench.broker)


def test_what_one_of_them_could_not_do_is_part_of_the_result(bench: Bench) -> None:
    good, bad = bench.worker(b"s", name=b"good"), bench.worker(b"s", name=b"bad")
    client = Listener(bench.broker, b"c")
    client.send(b"s", everybody())
    bad.fail()
    good.answer(b"yes")
    assert client.whole() == {b"good": b"yes", b"bad": reasons.WORKER_ERROR}


def test_if_nobody_did_anything_about_it_it_failed(bench: Bench) -> None:
    bench.worker(b"s", name=b"w1")
    bench.worker(b"s", name=b"w2")
    bench.client().ask(b"s")
    bench.client().ask(b"s")
    client = Listener(bench.broker, b"c")
    client.send(b"s", everybody(wait=2.0))
    bench.at(2.5)
    assert client.reasons() == [reasons.EXPIRED]
    assert client.of("gathered") == [(b"w1", reasons.EXPIRED), (b"w2", reasons.EXPIRED)]
    check(bench.broker)


def test_for_all_of_a_service_that_has_none_it_waits_for_the_first_and_a_moment_longer(bench: Bench) -> None:
    client = Listener(bench.broker, b"c")
    client.send(b"s", everybody())
    assert client.kinds() == ["accepted"]
    check(bench.broker)
    bench.at(3.0)
    first, second = bench.worker(b"s", name=b"w1"), bench.worker(b"s", name=b"w2")
    assert first.jobs == []
    bench.at(4.1, first, second)
    assert (len(first.jobs), len(second.jobs)) == (1, 1)
    assert client.of("assigned") == [[b"w1", b"w2"]]


def test_or_until_it_expires(bench: Bench) -> None:
    client = Listener(bench.broker, b"c")
    client.send(b"s", everybody(wait=5.0))
    bench.at(5.1)
    assert client.reasons() == [reasons.EXPIRED]
    assert not bench.broker.services


def test_workers_that_come_while_a_durable_job_for_all_is_being_stored_get_their_parts(bench: Bench) -> None:
    keeper = Keeping(bench)
    client = Listener(bench.broker, b"c")
    client.send(b"s", Options(uid="u", durable=True, target=Target(ALL)))
    workers = [bench.worker(b"s", name=b"w1"), bench.worker(b"s", name=b"w2")]
    keeper.commit()
    check(bench.broker)
    bench.at(1.1)
    assert client.of("assigned") == [[b"w1", b"w2"]]
    assert [len(worker.jobs) for worker in workers] == [1, 1]
    check(bench.broker)


def test_names_that_are_not_here_are_waited_for(bench: Bench) -> None:
    here = bench.worker(b"s", name=b"w1")
    client = Listener(bench.broker, b"c")
    client.send(b"s", Options(uid="u", target=Target(NAMES, [b"w1", b"w2", b"w1"])))
    here.answer(b"one")
    assert client.finals() == []
    bench.worker(b"s", name=b"w2").answer(b"two")
    assert client.whole() == {b"w1": b"one", b"w2": b"two"}


def test_every_worker_of_every_service(bench: Bench) -> None:
    workers = [bench.worker(b"a", name=b"a1"), bench.worker(b"b", name=b"b1"), bench.worker(b"b", name=b"b2")]
    client = Listener(bench.broker, b"c")
    client.send(b"all", Options(uid="u", target=Target(ALL, everywhere=True)))
    for worker in workers:
        worker.answer(worker.core.name)
    assert client.whole() == {b"a1": b"a1", b"b1": b"b1", b"b2": b"b2"}
    client.send(b"all", Options(uid="v", target=Target(EACH, everywhere=True)))
    assert sorted(client.of("assigned")[1]) == [b"a1", b"b1"]  # type: ignore[call-overload]
    client.send(b"all", Options(uid="w", target=Target(NAMES, [b"b2"], single=True, everywhere=True)))
    assert len(workers[2].jobs) == 2
    client.send(b"all", Options(uid="x", target=Target(NAMES, [b"nobody"], single=True, everywhere=True)))
    assert client.reasons() == [reasons.BAD_TARGET]
    check(bench.broker)


def test_a_job_for_nobody_is_refused(bench: Bench) -> None:
    client = Listener(bench.broker, b"c")
    client.send(b"s", Options(uid="u", target=Target(NAMES, [])))
    assert client.reasons() == [reasons.BAD_TARGET]
    assert not bench.broker.services


def test_cancelling_it_reaches_every_worker(bench: Bench) -> None:
    busy = Asked(bench, b"w1", b"s")
    waiting = Asked(bench, b"w2", b"s")
    client = Listener(bench.broker, b"c")
    client.send(b"s", Options(uid="before", target=Target(NAMES, [b"w2"], single=True)))
    job = client.send(b"s", everybody())
    assert job is not None
    assert bench.broker.cancel(job)
    assert client.reasons() == [reasons.CANCELLED]
    assert (len(busy.cancelled), waiting.cancelled) == (1, [])
    check(bench.broker)
    waiting.answer()
    assert waiting.holds == []
    check(bench.broker)


def test_without_its_client_the_parts_that_wait_are_dropped(bench: Bench) -> None:
    bench.worker(b"s", name=b"w1")
    bench.client().ask(b"s")
    client = Listener(bench.broker, b"c")
    client.send(b"s", everybody())
    assert bench.broker.services[b"s"].pinned_jobs == 1
    bench.broker.client_gone(client.core)
    assert bench.broker.services[b"s"].pinned_jobs == 0
    check(bench.broker)


def test_events_and_input_pass_between_client_and_each_worker(bench: Bench) -> None:
    workers = [Asked(bench, b"w%d" % number, b"s") for number in range(2)]
    client = Listener(bench.broker, b"c")
    job = client.send(b"s", everybody())
    assert job is not None
    broker = bench.broker
    broker.acknowledged(workers[0].core, workers[0].holds[0], b"got it")
    broker.event(workers[1].core, workers[1].holds[0], "progress", b"50 %")
    broker.stream(workers[1].core, workers[1].holds[0], b"data")
    workers[0].partial(b"some")
    assert client.of("taken") == [(b"w0", b"got it")]
    assert client.of("event") == [(b"w1", "progress", b"50 %")]
    assert client.of("stream") == [(b"w1", b"data"), (b"w0", b"some")]
    assert broker.put(job, [b"w1"], b"more") == 1
    assert broker.put(job, [], b"both") == 2
    assert workers[0].input == [(workers[0].holds[0], b"both")]
    assert [body for _, body in workers[1].input] == [b"more", b"both"]


def test_a_part_whose_worker_was_lost_waits_for_it(bench: Bench) -> None:
    worker, other = bench.worker(b"s", name=b"w1"), bench.worker(b"s", name=b"w2")
    client = Listener(bench.broker, b"c")
    client.send(b"s", everybody())
    other.answer(b"two")
    worker.leave()
    check(bench.broker)
    bench.worker(b"s", name=b"w1").answer(b"one")
    assert client.whole() == {b"w1": b"one", b"w2": b"two"}


def test_a_durable_one_tells_of_each_piece_only_when_it_is_on_disk(bench: Bench) -> None:
    bench.broker.services.policies[b"s"] = Policy(durable=True)
    keeper = Keeping(bench)
    workers = [bench.worker(b"s", name=b"w%d" % number) for number in range(2)]
    client = Listener(bench.broker, b"c")
    client.send(b"s", everybody())
    assert client.heard == []
    keeper.commit()
    assert client.kinds() == ["accepted", "assigned"]
    workers[1].answer(b"two")
    assert client.of("gathered") == []
    keeper.commit(Failure(reasons.STORE, "full"))
    assert client.of("gathered") == []
    bench.at(2.0, *workers)
    keeper.commit()
    assert client.of("gathered") == [(b"w1", b"two")]
    workers[0].answer(b"one")
    keeper.commit()
    assert client.finals() == []
    keeper.commit()
    assert client.whole() == {b"w0": b"one", b"w1": b"two"}
    check(bench.broker)


def test_after_a_restart_only_the_missing_parts_are_done(bench: Bench) -> None:
    keeper = Keeping(bench)
    broker = bench.broker
    gone = broker.store_events.absent_client(b"c", "fake", ANONYMOUS)
    job = broker.store_events.revive(gone, b"s", b"body", b"", everybody(), "u", 0)
    job.assignments = [Assignment(b"s", b"w0"), Assignment(b"s", b"w1")]
    broker.store_events.restore(job, b"", b"", "", {0: Piece(b"w0", b"one", "", "", b"")})
    first, second = bench.worker(b"s", name=b"w0"), bench.worker(b"s", name=b"w1")
    assert (first.jobs, len(second.jobs)) == ([], 1)
    second.answer(b"two")
    keeper.commit()
    keeper.commit()
    check(broker)
    ended: list[object] = []
    broker.jobs.recall(broker.principals.get(ANONYMOUS), "u", ended.append)
    assert [piece.body for piece in unpack(ended[0].body)] == [b"one", b"two"]  # type: ignore[attr-defined]


def test_packed_pieces_come_out_as_they_went_in() -> None:
    pieces = [
        Piece(b"one", b"x" * 300, "", "", b""),
        Piece(b"two", None, reasons.EXPIRED, "none came", b""),
        Piece(b"three", b"", reasons.WORKER_ERROR, "no", b'{"a": 1}'),
    ]
    for before, after in zip(pieces, unpack(pack(pieces)), strict=True):
        for name in ("name", "body", "reason", "message", "detail"):
            assert getattr(before, name) == getattr(after, name)
    assert unpack(b"") == []


def test_nothing_remains(bench: Bench) -> None:
    workers = [bench.worker(b"s", name=b"w%d" % number) for number in range(3)]
    client = Listener(bench.broker, b"c")
    client.send(b"s", everybody())
    for worker in workers:
        worker.answer()
    for worker in workers:
        worker.leave()
    check_empty(bench.broker)
