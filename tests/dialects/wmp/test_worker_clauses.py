"""14/WMP, sentence by sentence, of its workers."""

from __future__ import annotations

from itertools import pairwise

import pytest

from polydomo.dialects.wmp.messages import CANCEL, DONE, GIVE, NO, READY, STATUS, TAKE, WAKE
from polydomo.dialects.wmp.worker import BATCH_INTERVAL, FIRST_BATCH, NEVER, WmpRequest, WmpWorkerProtocol
from polydomo.wire.frames import Message, join, split
from tests.support.wmp import understood, wmp


class Bench:
    """A worker's side and its managers, who are numbers."""

    def __init__(self, slots: int = 1, managers: int = 1) -> None:
        self.now = 100.0
        self.dice = 0.5
        self.side = WmpWorkerProtocol([b"echo"], lambda: self.dice, slots)
        self.said: list[tuple[int, int, dict[str, object], list[bytes]]] = []
        self.paths: list[list[bytes]] = []
        for number in range(managers):
            self.side.connected(number, self.now)
        self.pump()

    def pump(self) -> None:
        for link, data in self.side.take_output():
            to, command, source, headers, payload = understood(split(data))
            assert source == []
            self.said.append((link, command, headers, payload))
            self.paths.append(to)

    def hear(
        self,
        link: int,
        command: int,
        headers: dict[str, object] | None = None,
        *payload: bytes,
        source: tuple[bytes, ...] = (),
    ) -> WmpRequest | None:
        data = join(wmp(command, headers, *payload, source=source))
        request = self.side.receive(link, Message(data, 0, len(data)), self.now)
        self.pump()
        return request

    def took(self) -> list[tuple[int, int]]:
        """What it has said since the last look: to whom, what."""
        said = [(link, command) for link, command, _, _ in self.said]
        self.said.clear()
        return said

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.side.due <= end:
            self.now = max(self.now, self.side.due)
            self.side.tick(self.now)
            self.pump()
        self.now = end

    def job(self, link: int = 0, wake: int = 1, name: str = "j", **more: object) -> WmpRequest:
        """From WAKE to TAKE."""
        self.hear(link, WAKE, {"wake": wake, "roles": ["echo"]})
        headers = {"wake": wake, "job": name, "manager": f"m{link}", "role": "echo", **more}
        request = self.hear(link, TAKE, headers, b"x")
        assert request is not None
        return request

    def finish(self, request: WmpRequest) -> None:
        self.side.final(request, join([b"y"]), self.now)
        self.pump()


@pytest.mark.clause("WMP-D-01")
def test_ready_goes_to_all_managers():
    bench = Bench(managers=5)
    assert bench.took() == [(number, READY) for number in range(5)]


def test_a_ready_says_what_it_can_do():
    bench = Bench(slots=3)
    [(_, _, headers, payload)] = bench.said
    assert headers == {"roles": ["echo"], "slots": 3, "beat": 10_000}
    assert payload == []


def test_what_it_can_do_is_said_once_and_when_it_is_repeated():
    bench = Bench(slots=2)
    bench.finish(bench.job())
    readies = [headers for _, command, headers, _ in bench.said if command == READY]
    assert readies == [
        {"roles": ["echo"], "slots": 2, "beat": 10_000},
        {"slots": 1},
        {"slots": 2},
    ]
    bench.said.clear()
    bench.wait(3.0)
    assert bench.said[0][2] == readies[0]
    bench.side.connected(7, bench.now)  # another, who knows nothing
    bench.pump()
    assert bench.said[-1][2] == readies[0]


@pytest.mark.clause("WMP-D-05")
def test_a_wake_locks_a_place_and_asks_for_the_job():
    bench = Bench()
    bench.took()
    bench.hear(0, WAKE, {"wake": 7, "roles": ["echo"]})
    assert bench.said[0][2] == {"wake": 7}
    assert bench.took() == [(0, GIVE)]
    assert bench.side.free == 0


@pytest.mark.clause("WMP-D-05")
def test_a_busy_worker_ignores_a_wake():
    bench = Bench(managers=2)
    bench.took()
    bench.hear(0, WAKE, {"wake": 1})
    bench.hear(1, WAKE, {"wake": 1})
    assert bench.took() == [(0, GIVE)]


@pytest.mark.clause("WMP-D-07")
def test_a_job_is_done_and_its_place_free():
    bench = Bench()
    request = bench.job()
    assert (request.service, request.body, request.manager) == (b"echo", join([b"x"]), b"m0")
    assert bench.side.free == 0
    bench.took()
    bench.finish(request)
    assert bench.said[0][2:] == ({"job": "j", "status": 200}, [b"y"])
    assert bench.took() == [(0, DONE), (0, READY)]
    assert bench.side.free == 1


@pytest.mark.clause("WMP-D-08")
def test_no_unlocks():
    bench = Bench()
    bench.hear(0, WAKE, {"wake": 1})
    bench.took()
    bench.hear(0, NO, {"wake": 1})
    assert bench.side.free == 1
    assert bench.took() == [(0, READY)]


@pytest.mark.clause("WMP-M-01")
@pytest.mark.clause("WMP-G-02")
def test_with_room_for_more_ready_comes_right_behind_take():
    bench = Bench(slots=2)
    bench.took()
    bench.job()
    assert bench.took() == [(0, GIVE), (0, READY)]
    bench.job(wake=2, name="k")
    assert bench.took() == [(0, GIVE)]
    assert bench.side.free == 0


@pytest.mark.clause("WMP-E-01")
def test_a_lock_ends_by_itself():
    bench = Bench()
    bench.hear(0, WAKE, {"wake": 1})
    bench.took()
    bench.wait(4.9)
    assert bench.side.free == 0
    bench.wait(0.2)
    assert bench.side.free == 1
    assert (0, READY) in bench.took()


def test_a_job_that_comes_too_late_for_its_lock_is_taken_if_there_is_room_and_else_given_back():
    bench = Bench(managers=2)
    bench.hear(0, WAKE, {"wake": 1})
    bench.wait(6.0)
    first = bench.hear(0, TAKE, {"wake": 1, "job": "a", "manager": "m"}, b"x")
    assert first is not None
    bench.took()
    assert bench.hear(1, TAKE, {"wake": 9, "job": "b", "manager": "n"}, b"x") is None
    assert bench.said[0][1:3] == (DONE, {"job": "b", "status": 503})


@pytest.mark.clause("WMP-E-02")
def test_ready_is_repeated_at_longer_and_longer_intervals_with_a_random_part():
    bench = Bench()
    bench.took()
    times = []
    for _ in range(8):
        bench.now = bench.side.due
        bench.side.tick(bench.now)
        bench.pump()
        assert bench.took() == [(0, READY)]
        times.append(bench.now)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(7.5)  # three quarters of ten seconds, with these dice
    bench.dice = 0.0
    bench.wait(30.0)
    assert len(bench.took()) in (5, 6)


@pytest.mark.clause("WMP-R-02")
def test_the_manager_s_word_counts_more_than_the_path():
    bench = Bench()
    bench.hear(0, WAKE, {"wake": 1}, source=(b"up", b"origin"))
    headers = {"wake": 1, "job": "j", "manager": "somebody-else", "role": "echo"}
    request = bench.hear(0, TAKE, headers, b"x", source=(b"up", b"origin"))
    assert request is not None
    assert request.manager == b"somebody-else"


@pytest.mark.clause("WMP-I-03")
def test_without_its_word_the_manager_is_the_origin_of_the_path():
    bench = Bench()
    bench.hear(0, WAKE, {"wake": 1}, source=(b"up", b"origin"))
    request = bench.hear(0, TAKE, {"wake": 1, "job": "j"}, b"x", source=(b"up", b"origin"))
    assert request is not None
    assert request.manager == b"origin"


@pytest.mark.clause("WMP-R-01")
def test_answers_go_back_the_way_the_question_came():
    bench = Bench()
    bench.paths.clear()
    bench.hear(0, WAKE, {"wake": 1}, source=(b"near", b"far"))
    request = bench.hear(0, TAKE, {"wake": 1, "job": "j"}, b"x", source=(b"near", b"far"))
    assert request is not None
    bench.side.partial(request, join([b"half"]), bench.now)
    bench.pump()
    bench.finish(request)
    assert bench.paths == [[b"near", b"far"]] * 3 + [[]]  # READY goes to all


def test_two_managers_behind_one_device_have_locks_of_their_own():
    bench = Bench(slots=2)
    bench.took()
    bench.hear(0, WAKE, {"wake": 1}, source=(b"a",))
    bench.hear(0, WAKE, {"wake": 1}, source=(b"b",))
    assert bench.took() == [(0, GIVE), (0, GIVE)]
    bench.hear(0, NO, {"wake": 1}, source=(b"b",))
    assert len(bench.side.locks) == 1


def test_the_same_take_twice_is_one_job():
    bench = Bench(slots=2)
    request = bench.job()
    assert bench.hear(0, TAKE, {"wake": 1, "job": "j", "manager": "m0", "role": "echo"}, b"x") is None
    bench.finish(request)
    assert bench.hear(0, TAKE, {"wake": 1, "job": "j", "manager": "m0", "role": "echo"}, b"x") is None
    assert bench.side.held == {}


@pytest.mark.clause("WMP-X-03")
def test_a_cancelled_job_is_told_to_its_owner():
    bench = Bench()
    request = bench.job()
    assert bench.hear(0, CANCEL, {"job": "other"}) is None
    again = bench.hear(0, CANCEL, {"job": "j"})
    assert again is request
    assert request.cancelled


@pytest.mark.clause("WMP-X-02")
def test_a_long_job_is_mentioned_now_and_then():
    bench = Bench()
    request = bench.job()
    bench.took()
    bench.wait(21.0)
    assert bench.took().count((0, STATUS)) == 4
    bench.finish(request)
    bench.took()
    bench.wait(21.0)
    assert (0, STATUS) not in bench.took()


def test_a_lost_manager_s_locks_are_free_and_its_jobs_go_on():
    bench = Bench(slots=2, managers=2)
    request = bench.job()
    bench.hear(0, WAKE, {"wake": 2})
    bench.side.disconnected(0, bench.now)
    assert len(bench.side.locks) == 0
    assert bench.side.free == 1
    bench.took()
    bench.finish(request)
    assert (0, DONE) not in bench.took()
    assert bench.side.free == 2


def test_of_many_managers_those_served_longest_ago_are_told_first_and_not_all_at_once():
    bench = Bench(managers=50)
    bench.took()
    request = bench.job(0)
    for number in range(1, 50):
        bench.hear(number, WAKE, {"wake": 1})
    bench.took()
    bench.finish(request)
    asked = [link for link, command in bench.took() if command == READY]
    assert asked == [0, 1][:FIRST_BATCH] or asked == [1, 2][:FIRST_BATCH]
    bench.wait(BATCH_INTERVAL * 1.5)  # nobody had anything: a few more
    assert len(bench.took()) == 2 * FIRST_BATCH
    bench.wait(0.5)
    assert len({link for link, _ in bench.took()}) >= 40


def test_stopping_takes_everything_back():
    bench = Bench(slots=2, managers=3)
    request = bench.job()
    bench.took()
    bench.side.stop(bench.now)
    bench.pump()
    assert [headers for _, _, headers, _ in bench.said] == [{"roles": []}] * 3
    bench.took()
    bench.hear(1, WAKE, {"wake": 1})
    assert bench.hear(1, TAKE, {"wake": 1, "job": "k"}, b"x") is None
    assert bench.took() == [(1, DONE)]
    bench.finish(request)
    assert bench.took() == [(0, DONE)]
    bench.wait(100.0)
    assert bench.took() == []
    assert bench.side.due == NEVER


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"hop", b"", b"WMP1", b"\x02", b"", b"\xa0"],
        [b"", b"WMP1", b"\x01", b"", b"\xa0"],
        [b"", b"WMP1", b"\x03", b"", b"\xa0"],
        [b"", b"WMP1", b"\x02"],
        [b"", b"WMP1", b"\x02", b"", b"\xff"],
        [b"", b"WMP1", b"\x99", b"", b"\xa0"],
        [b"", b"MDPW02", b"\x02", b"", b"\xa0"],
        wmp(TAKE, {"wake": 1}),
        wmp(TAKE, {"wake": "1", "job": "j"}),
        wmp(NO, {"wake": -1}),
    ],
)
def test_what_no_manager_says_is_dropped(frames: list[bytes]):
    bench = Bench()
    bench.took()
    data = join(frames)
    assert bench.side.receive(0, Message(data, 0, len(data)), bench.now) is None
    bench.pump()
    assert bench.took() == []
    bench.job()


def test_offering_more_or_less_is_told():
    bench = Bench()
    bench.took()
    bench.side.offer([b"echo", b"other"], 4, bench.now)
    bench.pump()
    assert bench.said[0][2] == {"roles": ["echo", "other"], "slots": 4, "beat": 10_000}
    bench.took()
    bench.side.offer([], 0, bench.now)
    bench.pump()
    assert bench.said[0][2] == {"roles": []}


def test_a_no_with_a_reason_refuses_a_role_and_is_not_answered():
    """Of our own broker. The READY is repeated later and later, as to a manager that is silent."""
    bench = Bench()
    bench.took()
    bench.hear(0, NO, {"error": "denied: x"})
    assert bench.side.refusal == "denied: x"
    assert bench.took() == []
    times = []
    for _ in range(4):
        bench.now = bench.side.due
        bench.side.tick(bench.now)
        bench.pump()
        assert bench.took() == [(0, READY)]
        times.append(bench.now)
        bench.hear(0, NO, {"error": "denied: x"})
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses == sorted(pauses)
    assert pauses[-1] > 2 * pauses[0]
    bench.hear(0, NO, {"wake": 7})
    assert bench.side.refusal == ""
