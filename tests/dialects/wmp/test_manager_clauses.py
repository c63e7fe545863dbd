"""14/WMP, sentence by sentence, of its managers: the broker's side, against peers written from the framing alone."""

from __future__ import annotations

import pytest

from polydomo.core.model import Worker
from polydomo.core.policy import Policy, WakePolicy
from polydomo.dialects.wmp.broker_worker import WmpWorker
from polydomo.dialects.wmp.messages import CANCEL, DONE, GIVE, NO, READY, STATUS, TAKE, WAKE
from polydomo.server.settings import ServiceSection, Settings, in_effect
from tests.support.core import FakeClient
from tests.support.dialects import Desk, Seat
from tests.support.wmp import understood, wmp

ECHO: dict[str, object] = {"roles": ["echo"]}


class Peer:
    """A worker behind a seat, and behind `path` if there are devices between."""

    def __init__(self, desk: Desk, name: bytes = b"", *path: bytes, seat: Seat | None = None) -> None:
        self.desk = desk
        self.seat = seat or desk.seat(name)
        self.path = path

    def say(self, command: int, headers: dict[str, object] | None = None, *payload: bytes) -> None:
        self.seat.send(*wmp(command, headers, *payload, source=self.path))

    def heard(self) -> list[tuple[int, dict[str, object], list[bytes]]]:
        """What it was sent, its path taken off."""
        found = []
        for frames in self.seat.take():
            to, command, _, headers, payload = understood(frames)
            if tuple(to) == self.path:
                found.append((command, headers, payload))
        return found

    def hears(self, command: int) -> dict[str, object]:
        """The one thing it was sent, which must be this."""
        said = self.heard()
        assert [one for one, _, _ in said] == [command], said
        return said[0][1]

    def work(self) -> dict[str, object]:
        """From WAKE to TAKE."""
        self.say(GIVE, {"wake": self.hears(WAKE)["wake"]})
        return self.hears(TAKE)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def client(desk: Desk) -> FakeClient:
    return FakeClient(desk.broker, b"client")


def workers(desk: Desk) -> list[Worker]:
    """All but the broker's own."""
    return [worker for worker in desk.broker.workers if not worker.internal]


def ask(desk: Desk, client: FakeClient, service: bytes = b"echo", body: bytes = b"\0\1x") -> None:
    client.ask(service, body)
    desk.settle()


@pytest.mark.clause("WMP-D-01")
def test_the_whole_conversation(desk: Desk, client: FakeClient):
    worker = Peer(desk)
    worker.say(READY, ECHO)
    assert worker.heard() == []
    ask(desk, client)
    woken = worker.hears(WAKE)
    assert woken["roles"] == ["echo"]
    worker.say(GIVE, {"wake": woken["wake"]})
    [(command, taken, payload)] = worker.heard()
    assert (command, payload) == (TAKE, [b"x"])
    assert (taken["wake"], taken["role"], taken["timeout"]) == (woken["wake"], "echo", 60_000)
    worker.say(DONE, {"job": taken["job"], "status": 200}, b"y")
    assert client.finals() == [b"\0\1y"]
    assert worker.heard() == []


@pytest.mark.clause("WMP-P-03")
def test_a_manager_says_nothing_before_it_is_spoken_to(desk: Desk, client: FakeClient):
    worker = Peer(desk)
    ask(desk, client)
    assert worker.heard() == []
    worker.say(READY, ECHO)
    worker.hears(WAKE)


@pytest.mark.clause("WMP-D-02")
def test_a_ready_is_remembered_until_a_job_is_available(desk: Desk, client: FakeClient):
    worker = Peer(desk)
    worker.say(READY, ECHO)
    desk.wait(500.0)
    ask(desk, client)
    worker.hears(WAKE)


@pytest.mark.clause("WMP-D-03")
def test_a_second_ready_of_a_path_that_is_remembered_is_ignored(desk: Desk, client: FakeClient):
    worker = Peer(desk)
    for _ in range(5):
        worker.say(READY, ECHO)
    ask(desk, client)
    ask(desk, client)
    worker.work()
    worker.say(READY, {"roles": ["other"]})
    assert [command for command, _, _ in worker.heard()] == []  # one READY, one WAKE
    assert len(workers(desk)) == 1


@pytest.mark.clause("WMP-D-02")
def test_paths_are_remembered_whole(desk: Desk, client: FakeClient):
    seat = desk.seat(b"device")
    one, other = Peer(desk, b"", b"same", seat=seat), Peer(desk, b"", b"left", b"same", seat=seat)
    one.say(READY, ECHO)
    other.say(READY, ECHO)
    ask(desk, client)
    ask(desk, client)
    paths = [tuple(understood(frames)[0]) for frames in seat.take()]
    assert sorted(paths) == [(b"left", b"same"), (b"same",)]
    # The origin is who it is; of two, the second is known by its whole path.
    assert {worker.name for worker in workers(desk)} == {b"same", b"device/left/same"}


@pytest.mark.clause("WMP-D-04")
def test_corresponding_workers_are_woken_and_no_others(desk: Desk, client: FakeClient):
    right, wrong = Peer(desk), Peer(desk)
    wrong.say(READY, {"roles": ["other"]})
    right.say(READY, {"roles": ["another", "echo"]})
    ask(desk, client)
    assert right.hears(WAKE)["roles"] == ["echo"]
    desk.wait(1.0)
    assert wrong.heard() == []


@pytest.mark.clause("WMP-D-04")
def test_all_are_woken_where_the_rule_says_so():
    desk = Desk(policy=Policy(waking=WakePolicy(first=100)))
    client = FakeClient(desk.broker, b"client")
    peers = [Peer(desk) for _ in range(7)]
    for worker in peers:
        worker.say(READY, ECHO)
    ask(desk, client)
    wakes = [worker.hears(WAKE)["wake"] for worker in peers]
    for worker, wake in zip(peers, wakes, strict=True):
        worker.say(GIVE, {"wake": wake})
    peers[0].hears(TAKE)
    for worker, wake in list(zip(peers, wakes, strict=True))[1:]:
        assert worker.hears(NO)["wake"] == wake


@pytest.mark.clause("WMP-D-06")
def test_without_a_job_a_give_is_answered_with_no(desk: Desk, client: FakeClient):
    worker, other = Peer(desk), Peer(desk)
    worker.say(READY, ECHO)
    ask(desk, client)
    woken = worker.hears(WAKE)
    desk.wait(0.2)
    other.say(READY, ECHO)
    other.work()
    again = worker.hears(WAKE)  # it had said nothing, and nobody else was there
    for wake in (woken["wake"], again["wake"]):
        worker.say(GIVE, {"wake": wake})
        assert worker.hears(NO) == {"wake": wake}
    ask(desk, client)
    worker.work()  # its READY is still good


def test_a_give_from_nowhere_is_answered_with_no(desk: Desk):
    worker = Peer(desk)
    worker.say(GIVE, {"wake": 77})
    assert worker.hears(NO) == {"wake": 77}
    worker.say(READY, ECHO)
    worker.say(GIVE, {"wake": 78})
    assert worker.hears(NO) == {"wake": 78}


def test_a_give_twice_is_one(desk: Desk, client: FakeClient):
    worker = Peer(desk)
    worker.say(READY, ECHO)
    ask(desk, client)
    ask(desk, client)
    woken = worker.hears(WAKE)
    worker.say(GIVE, {"wake": woken["wake"]})
    worker.say(GIVE, {"wake": woken["wake"]})
    worker.hears(TAKE)


def test_a_give_without_its_wake_is_for_the_oldest(desk: Desk, client: FakeClient):
    worker = Peer(desk)
    worker.say(READY, ECHO)
    ask(desk, client)
    woken = worker.hears(WAKE)
    worker.say(GIVE)
    assert worker.hears(TAKE)["wake"] == woken["wake"]


@pytest.mark.clause("WMP-R-02")
def test_a_take_says_who_the_manager_is(desk: Desk, client: FakeClient):
    desk.context.broker_id = b"the-manager"
    worker = Peer(desk)
    worker.say(READY, ECHO)
    ask(desk, client)
    assert worker.work()["manager"] == "the-manager"


@pytest.mark.clause("WMP-M-02")
def test_each_ready_is_a_request_for_one_more_job(desk: Desk, client: FakeClient):
    worker = Peer(desk)
    worker.say(READY, ECHO)
    jobs = set()
    for _ in range(3):
        ask(desk, client)
    for _ in range(3):
        taken = worker.work()
        jobs.add(taken["job"])
        worker.say(READY, ECHO)
    assert len(jobs) == 3
    [core] = workers(desk)
    assert len(core.running) == 3


def test_a_ready_for_several_jobs_is_several(desk: Desk, client: FakeClient):
    worker = Peer(desk)
    worker.say(READY, {"roles": ["echo"], "slots": 3})
    for _ in range(5):
        ask(desk, client)
    wakes = [headers["wake"] for command, headers, _ in worker.heard() if command == WAKE]
    assert len(wakes) == 3
    for wake in wakes:
        worker.say(GIVE, {"wake": wake})
    assert [command for command, _, _ in worker.heard()] == [TAKE] * 3


def test_a_ready_may_leave_out_what_it_has_said_before(desk: Desk, client: FakeClient):
    worker = Peer(desk)
    worker.say(READY, {"slots": 3})  # nobody knows what it could do
    assert not workers(desk)
    worker.say(READY, ECHO)
    ask(desk, client)
    worker.work()
    worker.say(READY, {"slots": 2})
    for _ in range(4):
        ask(desk, client)
    assert [command for command, _, _ in worker.heard()] == [WAKE, WAKE]


def test_a_ready_for_no_job_keeps_its_place_and_wakes_nobody(desk: Desk, client: FakeClient):
    worker = Peer(desk)
    worker.say(READY, ECHO)
    worker.say(READY, {"roles": ["echo"], "slots": 0})
    ask(desk, client)
    desk.wait(5.0)
    assert worker.heard() == []
    assert len(workers(desk)) == 1
    worker.say(READY, {"slots": 1})
    worker.work()


def test_more_workers_behind_one_connection_than_may_be(desk: Desk):
    desk.context.wmp_workers = 3
    seat = desk.seat(b"device")
    for number in range(5):
        Peer(desk, b"", b"%d" % number, seat=seat).say(READY, ECHO)
    assert len(workers(desk)) == 3
    assert len(seat.complaints) == 2


@pytest.mark.clause("WMP-L-01")
def test_an_idle_worker_of_another_dialect_goes_first(desk: Desk, client: FakeClient):
    """Who can be given a job at once gets it; those that must be woken are for what would wait."""
    worker = Peer(desk)
    worker.say(READY, ECHO)
    mdp = desk.seat()
    mdp.send(b"MDPW02", b"\x01", b"echo")
    ask(desk, client)
    assert worker.heard() == []
    assert mdp.take()
    ask(desk, client)
    worker.hears(WAKE)


@pytest.mark.clause("WMP-L-02")
def test_labels_choose_the_workers():
    desk = Desk(policy=Policy(waking=WakePolicy(labels={"gpu": True})))
    client = FakeClient(desk.broker, b"client")
    plain, fast = Peer(desk), Peer(desk)
    plain.say(READY, ECHO)
    fast.say(READY, {"roles": ["echo"], "labels": {"gpu": True, "zone": "a"}})
    ask(desk, client)
    fast.hears(WAKE)
    desk.wait(5.0)
    assert plain.heard() == []


@pytest.mark.clause("WMP-L-02")
@pytest.mark.parametrize(
    ("written", "fitting", "others"),
    [
        ("gpu=true", [True, "true"], [False, "false", 1, "True", None]),
        ("gpu=2", [2, 2.0, "2"], [True, 3, 2.5, "2.0", "02"]),
        ("gpu=1.10", ["1.10"], ["1.1", 1.1]),
        ("gpu=a", ["a"], ["b", ""]),
    ],
)
def test_labels_are_compared_by_their_text(written: str, fitting: list[object], others: list[object]):
    section = ServiceSection(wake_labels=[written])
    policy = Settings(services={"echo": section}).policies()[b"echo"]
    assert in_effect(policy, "wake_labels") == [written]
    for place, value in enumerate([*fitting, *others]):
        desk = Desk(policy=policy)
        worker = Peer(desk)
        worker.say(READY, {"roles": ["echo"], "labels": {"gpu": value}})
        ask(desk, FakeClient(desk.broker, b"client"))
        assert bool(worker.heard()) == (place < len(fitting)), value


@pytest.mark.parametrize(
    ("said", "weight"),
    [
        (3, 3.0),
        ("3", 3.0),
        (2.5, 2.5),
        (0, 1.0),
        (-1, 1.0),
        ("heavy", 1.0),
        (float("inf"), 1.0),
        (float("nan"), 1.0),
    ],
)
def test_a_weight_is_a_finite_number_above_zero(desk: Desk, said: object, weight: float):
    Peer(desk).say(READY, {"roles": ["echo"], "labels": {"weight": said}})
    weights = [one.port.wakeable.weight for one in desk.broker.workers if isinstance(one.port, WmpWorker)]
    assert weights == [weight]


@pytest.mark.clause("WMP-X-02")
def test_a_status_with_a_payload_is_one_of_several_answers(desk: Desk, client: FakeClient):
    worker = Peer(desk)
    worker.say(READY, ECHO)
    ask(desk, client)
    job = worker.work()["job"]
    worker.say(STATUS, {"job": job}, b"half")
    worker.say(STATUS, {"job": job})  # a sign of life, nothing more
    worker.say(DONE, {"job": job, "status": 200}, b"all")
    assert client.heard == [("partial", 1, b"\0\4half"), ("final", 1, b"\0\3all")]


@pytest.mark.clause("WMP-X-03")
def test_a_cancelled_job_s_worker_is_told(desk: Desk, client: FakeClient):
    worker = Peer(desk)
    worker.say(READY, ECHO)
    job = client.ask(b"echo", b"\0\1x")
    desk.settle()
    taken = worker.work()
    assert job is not None
    assert desk.broker.cancel(job)
    desk.settle()
    assert worker.hears(CANCEL) == {"job": taken["job"]}
    worker.say(DONE, {"job": taken["job"], "status": 200}, b"too late")
    assert client.finals() == []
    assert worker.seat.complaints == []


@pytest.mark.clause("WMP-X-01")
def test_a_lost_worker_s_job_goes_to_another(desk: Desk, client: FakeClient):
    worker, other = Peer(desk), Peer(desk)
    worker.say(READY, ECHO)
    ask(desk, client)
    worker.work()
    other.say(READY, ECHO)
    worker.seat.drop()
    again = other.work()
    other.say(DONE, {"job": again["job"], "status": 200}, b"y")
    assert client.finals() == [b"\0\1y"]


def test_a_job_that_is_not_begun_goes_to_another_and_costs_no_attempt(desk: Desk, client: FakeClient):
    worker = Peer(desk)
    for _ in range(10):
        worker.say(READY, ECHO)
        if not client.core.jobs:
            ask(desk, client)
        taken = worker.work()
        worker.say(DONE, {"job": taken["job"], "status": 503})
    assert client.heard == []
    worker.say(READY, ECHO)
    taken = worker.work()
    worker.say(DONE, {"job": taken["job"]}, b"y")
    assert client.finals() == [b"\0\1y"]


def test_a_failure_is_told_with_its_account(desk: Desk, client: FakeClient):
    worker = Peer(desk)
    worker.say(READY, ECHO)
    ask(desk, client)
    job = worker.work()["job"]
    worker.say(DONE, {"job": job, "status": 500, "error": {"message": "no", "kind": "ValueError"}}, b"plain")
    assert client.reasons() == ["worker-error"]
    assert desk.broker.accounting.totals.failed == 1


@pytest.mark.clause("WMP-I-04")
def test_who_a_device_lost_is_gone_with_all_behind_it(desk: Desk, client: FakeClient):
    seat = desk.seat(b"device")
    near = Peer(desk, b"", b"near", seat=seat)
    far = Peer(desk, b"", b"box", b"far", seat=seat)
    for peer in (far, near):
        peer.say(READY, ECHO)
    ask(desk, client)
    far.work()
    box = Peer(desk, b"", b"box", seat=seat)
    box.say(READY, {"gone": True, "roles": []})
    assert {worker.name for worker in workers(desk)} == {b"near"}
    near.work()  # what it had goes to another


def test_ready_for_nothing_takes_a_ready_back(desk: Desk, client: FakeClient):
    worker = Peer(desk)
    worker.say(READY, ECHO)
    worker.say(READY, {"roles": []})
    ask(desk, client)
    desk.wait(10.0)
    assert worker.heard() == []
    assert not workers(desk)


def test_other_roles_than_before(desk: Desk, client: FakeClient):
    worker = Peer(desk)
    worker.say(READY, {"roles": ["a", "b"]})
    worker.say(READY, {"roles": ["b", "c"]})
    [core] = workers(desk)
    assert sorted(service.name for service in core.services) == [b"b", b"c"]
    ask(desk, client, b"a")
    assert worker.heard() == []
    ask(desk, client, b"c")
    assert worker.hears(WAKE)["roles"] == ["c"]


def test_a_role_given_up_while_it_was_woken_for_it(desk: Desk, client: FakeClient):
    worker = Peer(desk)
    worker.say(READY, {"roles": ["a", "b"]})
    ask(desk, client, b"a")
    woken = worker.hears(WAKE)
    worker.say(READY, {"roles": ["b"]})
    ask(desk, client, b"b")
    worker.say(GIVE, {"wake": worker.hears(WAKE)["wake"]})
    assert worker.hears(TAKE)["role"] == "b"
    worker.say(GIVE, {"wake": woken["wake"]})
    worker.hears(NO)


def test_a_worker_that_says_how_often_it_speaks_is_held_to_it(desk: Desk, client: FakeClient):
    worker = Peer(desk)
    worker.say(READY, {"roles": ["echo"], "beat": 1000})
    ask(desk, client)
    job = worker.work()["job"]
    for _ in range(10):
        desk.wait(0.9)
        worker.say(STATUS, {"job": job})
    assert len(workers(desk)) == 1
    for _ in range(5):
        desk.wait(0.9)
    assert not workers(desk)


def test_jobs_for_one_worker_wake_that_one(desk: Desk, client: FakeClient):
    from polydomo.core.targets import NAMES, Target
    from polydomo.core.tracked_job import Options

    peers = [Peer(desk, b"w%d" % number) for number in range(5)]
    for worker in peers:
        worker.say(READY, ECHO)
    target = Target(NAMES, [b"w3"], single=True)
    desk.broker.submit(client.core, b"echo", b"\0\1x", b"", Options(target=target))
    desk.settle()
    peers[3].work()
    assert all(worker.heard() == [] for worker in peers)


@pytest.mark.parametrize(
    "frames",
    [
        wmp(WAKE, {"wake": 1}),
        wmp(TAKE, {"job": "1"}),
        wmp(NO),
        wmp(CANCEL),
        [b"", b"WMP1", b"\x63", b"", b"\xa0"],
        [b"", b"WMP1", b"", b"", b"\xa0"],
        [b"", b"WMP1", b"\x01"],
        [b"", b"WMP1", b"\x01", b"", b"\xff"],
        [b"", b"WMP1", b"\x01", b"", b"x" * 70_000],
        wmp(READY, {"roles": "echo"}),
        wmp(READY, {"roles": [7]}),
        wmp(READY, {"roles": ["echo"], "slots": -1}),
        wmp(READY, {"roles": ["echo"], "slots": 10**9}),
        wmp(READY, {"roles": ["echo"], "labels": 3}),
        wmp(READY, {"roles": ["mmi.service"]}),
        wmp(READY, {"roles": [""]}),
        wmp(READY, ECHO, source=tuple(b"%d" % hop for hop in range(17))),
    ],
)
def test_bad_messages_are_dropped_with_a_reason_and_others_notice_nothing(
    desk: Desk, client: FakeClient, frames: list[bytes]
):
    good, bad = Peer(desk), desk.seat()
    good.say(READY, ECHO)
    bad.send(*frames)
    assert len(bad.complaints) == 1, bad.complaints
    assert len(workers(desk)) == 1
    ask(desk, client)
    job = good.work()["job"]
    good.say(DONE, {"job": job, "status": 200}, b"y")
    assert client.finals() == [b"\0\1y"]


@pytest.mark.parametrize(
    ("command", "headers"),
    [
        (DONE, {}),
        (DONE, {"job": "nobody's", "status": 200}),
        (DONE, {"job": "nobody's", "status": "fine"}),
        (DONE, {"job": 5}),
        (STATUS, {"job": 5}),
        (STATUS, {"job": "nobody's", "event": "x"}),
        (GIVE, {"wake": "1"}),
    ],
)
def test_bad_words_of_a_good_worker_are_dropped(
    desk: Desk, client: FakeClient, command: int, headers: dict[str, object]
):
    worker = Peer(desk)
    worker.say(READY, ECHO)
    worker.say(command, headers, b"x")
    assert len(worker.seat.complaints) == 1
    ask(desk, client)
    worker.work()


def swift(desk: Desk, client: FakeClient, jobs: int) -> Peer:
    """A worker with three places that has answered within a millisecond until now, and now is woken thrice."""
    worker = Peer(desk)
    worker.say(READY, {**ECHO, "slots": 3})
    for _ in range(40):
        ask(desk, client)
        woken = worker.hears(WAKE)
        desk.wait(0.001)
        worker.say(GIVE, {"wake": woken["wake"]})
        worker.say(DONE, {"job": worker.hears(TAKE)["job"], "status": 200}, b"y")
        worker.say(READY, {"slots": 3})
    for _ in range(jobs):
        client.ask(b"echo", b"\0\1x")
    desk.settle()
    return worker


def wakes(worker: Peer) -> list[object]:
    said = worker.heard()
    assert {command for command, _, _ in said} <= {WAKE, TAKE}
    return [headers["wake"] for command, headers, _ in said if command == WAKE]


def test_a_ready_that_crossed_a_wake_does_not_cost_the_place_for_long(desk: Desk, client: FakeClient):
    worker = swift(desk, client, 10)
    assert len(wakes(worker)) == 3
    desk.wait(0.002)
    worker.say(READY, {"slots": 3})  # before it has seen any of the three, or after all of them, being busy?
    assert wakes(worker) == []
    desk.wait(0.001)
    assert wakes(worker) == []
    desk.wait(0.004)  # others answer within one millisecond: it was busy then
    assert len(wakes(worker)) == 3


def test_whoever_answers_a_later_wake_has_seen_the_earlier_ones(desk: Desk, client: FakeClient):
    worker = swift(desk, client, 10)
    first, _, third = wakes(worker)
    worker.say(GIVE, {"wake": third})
    [(command, taken, _), *further] = worker.heard()
    assert (command, taken["wake"]) == (TAKE, third)
    assert [command for command, _, _ in further] == [WAKE, WAKE]
    worker.say(GIVE, {"wake": first})  # should it not keep to the order, it gets a job all the same
    assert worker.hears(TAKE)["wake"] == first
