"""core: a name belongs to one worker at a time, and an attempt to the worker that has it, also after a restart."""

from __future__ import annotations

import pytest

from polydomo.core.broker import ANSWERED, STRAY
from polydomo.core.policy import Heartbeat
from polydomo.core.principals import ANONYMOUS
from polydomo.core.targets import NAMES, Target
from polydomo.core.tracked_job import Options, TrackedJob
from tests.core.listening import Keeping
from tests.support.core import Bench, FakeWorker, check_empty


class Namesake(FakeWorker):
    """A worker that may be asked whether it is alive, and for its jobs of before a restart."""

    def __init__(
        self, bench: Bench, name: bytes = b"w", principal: str = ANONYMOUS, instance: bytes = b""
    ) -> None:
        super().__init__(bench.broker, name, Heartbeat(1.0, 3))
        self.core = bench.broker.make_worker(name, "fake", self, Heartbeat(1.0, 3), principal)
        self.core.instance = instance
        self.alive = True
        self.reclaimed: list[bytes] = []

    def is_alive(self) -> bool:
        return self.alive

    def reclaim(self, job: object) -> bool:
        assert isinstance(job, TrackedJob)
        self.reclaimed.append(job.token)
        return True


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("service", [b"s", b"another"])
def test_a_second_worker_with_a_living_worker_s_name_is_refused(bench: Bench, service: bytes) -> None:
    first, second = Namesake(bench), Namesake(bench)
    assert first.register(b"s")
    assert not second.register(service)
    assert second.core not in bench.broker.workers
    client = bench.client()
    client.ask(b"s", options=Options(target=Target(NAMES, [b"w"])))
    assert (len(first.jobs), second.jobs) == (1, [])
    assert first.answer() == ANSWERED
    first.leave()
    assert second.register(service)


def test_the_second_takes_over_when_the_first_is_dead_and_gets_its_job(bench: Bench) -> None:
    first, second = Namesake(bench), Namesake(bench)
    first.register(b"s")
    bench.client().ask(b"s", options=Options(target=Target(NAMES, [b"w"])))
    first.alive = False
    assert second.register(b"s")
    assert first.dismissals == ["another connection has this name now"]
    assert first.core not in bench.broker.workers
    assert second.jobs == first.jobs
    assert first.answer(b"too late") == STRAY
    assert second.answer() == ANSWERED
    second.leave()
    check_empty(bench.broker)


@pytest.mark.parametrize("alive", [True, False])
def test_a_name_never_goes_to_another_principal_while_it_is_in_use(bench: Bench, alive: bool) -> None:
    first, second = Namesake(bench, principal="one"), Namesake(bench, principal="two", instance=b"i")
    first.core.instance = b"i"
    first.register(b"s")
    first.alive = alive
    assert not second.register(b"s")
    assert not second.register(b"another")
    first.leave()
    assert second.register(b"s")


def test_connections_of_one_peer_share_its_name(bench: Bench) -> None:
    """Our SDK has a connection for each service."""
    first, second = Namesake(bench, instance=b"i"), Namesake(bench, instance=b"i")
    assert first.register(b"s")
    assert second.register(b"another")
    assert not Namesake(bench, instance=b"j").register(b"third")
    first.leave()
    assert not Namesake(bench).register(b"s")  # the second still has it
    assert first.dismissals == second.dismissals == []


def test_a_worker_may_register_again_and_for_more(bench: Bench) -> None:
    worker = Namesake(bench)
    assert worker.register(b"s")
    assert worker.register(b"s")
    assert worker.register(b"another")


def test_a_made_up_name_gives_way_to_a_chosen_one(bench: Bench) -> None:
    """Otherwise whoever guesses the next one would keep its worker out."""
    squatter, honest, other = Namesake(bench, b"mdp-1"), Namesake(bench, b"mdp-1"), Namesake(bench, b"mdp-1")
    honest.core.anonymous = other.core.anonymous = True
    for worker in (squatter, honest, other):
        assert worker.register(b"s")
    assert [worker.core.name for worker in (squatter, honest, other)] == [b"mdp-1", b"mdp-1-2", b"mdp-1-3"]
    assert squatter.dismissals == []


WRONG = [(b"stranger", "p", b"s"), (b"w", "q", b"s"), (b"w", "p", b"another")]


@pytest.mark.parametrize(("name", "principal", "service"), WRONG)
def test_an_attempt_of_before_a_restart_is_its_holder_s_alone(
    bench: Bench, name: bytes, principal: str, service: bytes
) -> None:
    """The token, which is a counter, proves nothing: name, principal and service must be the holder's."""
    Keeping(bench)
    job = restored(bench, b"w", "p")
    stranger = Namesake(bench, name, principal)
    assert stranger.register(service)
    assert stranger.reclaimed == []
    assert stranger.answer(b"forged", job.token) == STRAY
    assert not bench.broker.take_up(stranger.core, job.token)
    assert job.token in bench.broker.orphans()
    stranger.leave()
    holder = Namesake(bench, b"w", "p")
    assert holder.register(b"s")
    assert holder.reclaimed == [job.token]
    assert holder.answer(b"42", job.token) == ANSWERED
    assert not bench.broker.orphans()


def restored(bench: Bench, holder: bytes, principal: str) -> TrackedJob:
    """A job that was running when the broker stopped."""
    events = bench.broker.store_events
    client = events.absent_client(b"c", "fake", ANONYMOUS)
    job = events.revive(client, b"s", b"body", b"", Options(uid="u"), "u", 0)
    job.number = 1
    events.restore(job, b"feedbeef", holder, principal)
    return job
