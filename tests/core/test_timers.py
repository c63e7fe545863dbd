"""core: when timers fire."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polydomo.core.timers import NEVER, Timer, TimerHeap
from tests.support.effort import examples


class Bell(Timer):
    """Rings, and may set itself again."""

    def __init__(self, timers: TimerHeap | None = None, again: float = NEVER) -> None:
        super().__init__()
        self.rung: list[float] = []
        self.timers = timers
        self.again = again

    def fire(self, now: float) -> None:
        self.rung.append(now)
        if self.timers is not None and self.again != NEVER:
            self.timers.set(self, now + self.again)


def test_nothing_to_do_is_never() -> None:
    timers = TimerHeap()
    assert timers.next() == NEVER
    timers.fire(1e9)
    assert len(timers) == 0


def test_an_alarm_rings_once_at_its_time() -> None:
    timers, bell = TimerHeap(), Bell()
    timers.set(bell, 5.0)
    assert timers.next() == 5.0
    timers.fire(4.999)
    assert bell.rung == []
    timers.fire(5.0)
    timers.fire(6.0)
    assert bell.rung == [5.0]
    assert bell.fires_at == NEVER


def test_alarms_ring_in_the_order_of_their_times_and_then_of_their_setting() -> None:
    timers = TimerHeap()
    order: list[str] = []

    class Named(Timer):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def fire(self, now: float) -> None:
            order.append(self.name)

    for name, when in (("c", 3.0), ("a", 1.0), ("b1", 2.0), ("b2", 2.0)):
        timers.set(Named(name), when)
    timers.fire(10.0)
    assert order == ["a", "b1", "b2", "c"]


def test_an_earlier_alarm_stays_and_a_later_one_gives_way() -> None:
    timers, bell = TimerHeap(), Bell()
    timers.set(bell, 5.0)
    timers.set(bell, 7.0)
    assert timers.next() == 5.0
    timers.set(bell, 2.0)
    assert timers.next() == 2.0
    timers.fire(10.0)
    assert bell.rung == [10.0]  # once, not for each time it was set


def test_a_cleared_alarm_does_not_ring() -> None:
    timers, bell = TimerHeap(), Bell()
    timers.set(bell, 5.0)
    timers.clear(bell)
    assert timers.next() == NEVER
    timers.set(bell, 6.0)
    timers.fire(5.5)
    assert bell.rung == []
    timers.fire(6.0)
    assert bell.rung == [6.0]


def test_whoever_rings_may_set_the_next_alarm() -> None:
    timers = TimerHeap()
    bell = Bell(timers, again=2.0)
    timers.set(bell, 1.0)
    for now in range(8):
        timers.fire(float(now))
    assert bell.rung == [1.0, 3.0, 5.0, 7.0]


def test_the_owner_is_told_of_an_alarm_before_all_others() -> None:
    timers = TimerHeap()
    told: list[float] = []
    timers.on_sooner = told.append
    timers.set(Bell(), 5.0)
    timers.set(Bell(), 6.0)
    timers.set(Bell(), 4.0)
    assert told == [5.0, 4.0]
    assert timers.soonest == 4.0


def test_soonest_is_never_later_than_any_alarm() -> None:
    timers = TimerHeap()
    bells = [Bell() for _ in range(3)]
    for bell, when in zip(bells, (3.0, 1.0, 2.0), strict=True):
        timers.set(bell, when)
    timers.clear(bells[1])
    assert timers.soonest <= 2.0
    assert timers.next() == timers.soonest == 2.0


def test_alarms_set_and_cleared_for_ever_do_not_pile_up() -> None:
    """Clients that come, ask for a made-up service and go leave an alarm an hour away behind each time."""
    timers = TimerHeap()
    keep = Bell()
    timers.set(keep, 3600.0)
    for _ in range(10_000):
        bell = Bell()
        timers.set(bell, 3600.0)
        timers.clear(bell)
    assert len(timers) < 200
    for _ in range(10_000):  # one thing, again and again, at the same time
        timers.set(bell, 3600.0)
        timers.clear(bell)
    assert len(timers) < 200
    for when in range(20_000, 10_000, -1):  # and always earlier
        timers.set(bell, float(when))
    assert len(timers) < 200
    timers.fire(1e9)
    assert keep.rung == bell.rung == [1e9]


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from(["set", "set", "clear", "ring"]), st.integers(0, 30))
    )
)
@examples(150)
def test_like_a_model(steps: list[tuple[int, str, int]]) -> None:
    timers = TimerHeap()
    bells = [Bell() for _ in range(5)]
    due = [NEVER] * 5
    rung = [0] * 5
    now = 0.0
    for index, what, when in steps:
        if what == "set":
            timers.set(bells[index], float(when))
            due[index] = min(due[index], float(when))
        elif what == "clear":
            timers.clear(bells[index])
            due[index] = NEVER
        else:
            now = max(now, float(when))
            timers.fire(now)
            for other in range(5):
                if due[other] <= now:
                    rung[other] += 1
                    due[other] = NEVER
        assert [len(bell.rung) for bell in bells] == rung
        assert timers.next() == min(due)
