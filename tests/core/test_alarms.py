"""core/alarms: when to look at what."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polydomo.core.alarms import NEVER, Alarms, Timed
from tests.support.effort import examples


class Bell(Timed):
    """Rings, and may set itself again."""

    def __init__(self, alarms: Alarms | None = None, again: float = NEVER) -> None:
        super().__init__()
        self.rung: list[float] = []
        self.alarms = alarms
        self.again = again

    def ring(self, now: float) -> None:
        self.rung.append(now)
        if self.alarms is not None and self.again != NEVER:
            self.alarms.set(self, now + self.again)


def test_nothing_to_do_is_never() -> None:
    alarms = Alarms()
    assert alarms.next() == NEVER
    alarms.ring(1e9)
    assert len(alarms) == 0


def test_an_alarm_rings_once_at_its_time() -> None:
    alarms, bell = Alarms(), Bell()
    alarms.set(bell, 5.0)
    assert alarms.next() == 5.0
    alarms.ring(4.999)
    assert bell.rung == []
    alarms.ring(5.0)
    alarms.ring(6.0)
    assert bell.rung == [5.0]
    assert bell.alarm == NEVER


def test_alarms_ring_in_the_order_of_their_times_and_then_of_their_setting() -> None:
    alarms = Alarms()
    order: list[str] = []

    class Named(Timed):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def ring(self, now: float) -> None:
            order.append(self.name)

    for name, when in (("c", 3.0), ("a", 1.0), ("b1", 2.0), ("b2", 2.0)):
        alarms.set(Named(name), when)
    alarms.ring(10.0)
    assert order == ["a", "b1", "b2", "c"]


def test_an_earlier_alarm_stays_and_a_later_one_gives_way() -> None:
    alarms, bell = Alarms(), Bell()
    alarms.set(bell, 5.0)
    alarms.set(bell, 7.0)
    assert alarms.next() == 5.0
    alarms.set(bell, 2.0)
    assert alarms.next() == 2.0
    alarms.ring(10.0)
    assert bell.rung == [10.0]  # once, not for each time it was set


def test_a_cleared_alarm_does_not_ring() -> None:
    alarms, bell = Alarms(), Bell()
    alarms.set(bell, 5.0)
    alarms.clear(bell)
    assert alarms.next() == NEVER
    alarms.set(bell, 6.0)
    alarms.ring(5.5)
    assert bell.rung == []
    alarms.ring(6.0)
    assert bell.rung == [6.0]


def test_whoever_rings_may_set_the_next_alarm() -> None:
    alarms = Alarms()
    bell = Bell(alarms, again=2.0)
    alarms.set(bell, 1.0)
    for now in range(8):
        alarms.ring(float(now))
    assert bell.rung == [1.0, 3.0, 5.0, 7.0]


def test_the_owner_is_told_of_an_alarm_before_all_others() -> None:
    alarms = Alarms()
    told: list[float] = []
    alarms.on_sooner = told.append
    alarms.set(Bell(), 5.0)
    alarms.set(Bell(), 6.0)
    alarms.set(Bell(), 4.0)
    assert told == [5.0, 4.0]
    assert alarms.soonest == 4.0


def test_soonest_is_never_later_than_any_alarm() -> None:
    alarms = Alarms()
    bells = [Bell() for _ in range(3)]
    for bell, when in zip(bells, (3.0, 1.0, 2.0), strict=True):
        alarms.set(bell, when)
    alarms.clear(bells[1])
    assert alarms.soonest <= 2.0
    assert alarms.next() == alarms.soonest == 2.0


def test_alarms_set_and_cleared_for_ever_do_not_pile_up() -> None:
    """Clients that come, ask for a made-up service and go leave an alarm an hour away behind each time."""
    alarms = Alarms()
    keep = Bell()
    alarms.set(keep, 3600.0)
    for _ in range(10_000):
        bell = Bell()
        alarms.set(bell, 3600.0)
        alarms.clear(bell)
    assert len(alarms) < 200
    for _ in range(10_000):  # one thing, again and again, at the same time
        alarms.set(bell, 3600.0)
        alarms.clear(bell)
    assert len(alarms) < 200
    for when in range(20_000, 10_000, -1):  # and always earlier
        alarms.set(bell, float(when))
    assert len(alarms) < 200
    alarms.ring(1e9)
    assert keep.rung == bell.rung == [1e9]


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from(["set", "set", "clear", "ring"]), st.integers(0, 30))
    )
)
@examples(150)
def test_like_a_model(steps: list[tuple[int, str, int]]) -> None:
    alarms = Alarms()
    bells = [Bell() for _ in range(5)]
    due = [NEVER] * 5
    rung = [0] * 5
    now = 0.0
    for index, what, when in steps:
        if what == "set":
            alarms.set(bells[index], float(when))
            due[index] = min(due[index], float(when))
        elif what == "clear":
            alarms.clear(bells[index])
            due[index] = NEVER
        else:
            now = max(now, float(when))
            alarms.ring(now)
            for other in range(5):
                if due[other] <= now:
                    rung[other] += 1
                    due[other] = NEVER
        assert [len(bell.rung) for bell in bells] == rung
        assert alarms.next() == min(due)
