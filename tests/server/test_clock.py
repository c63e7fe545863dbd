"""The broker's own time: it stands still while the broker does."""

from polydomo.server.clock import ServerClock


class Watch:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_time_passes():
    watch = Watch()
    clock = ServerClock(watch)
    start = clock.read()
    for _ in range(10):
        watch.now += 0.9
        clock.read()
    assert clock.read() - start == watch.now - 100.0


def test_a_stall_is_no_time():
    watch = Watch()
    clock = ServerClock(watch)
    start = clock.read()
    watch.now += 3600
    assert clock.read() == start
    watch.now += 0.5
    assert clock.read() == start + 0.5


def test_what_counts_as_a_stall_follows_the_heartbeat():
    """A stall that is not noticed must be shorter than an interval, or it eats up a worker's liveness."""
    watch = Watch()
    clock = ServerClock(watch)
    clock.follow(0.2)
    start = clock.read()
    assert clock.longest_sleep == 0.1
    watch.now += 0.25
    assert clock.read() == start
    watch.now += 0.15
    assert clock.read() > start
    clock.follow(60)
    assert clock.longest_sleep == 1.0
