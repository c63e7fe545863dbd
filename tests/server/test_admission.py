"""Admission: who is cut when a crowd is full."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polydomo.server.admission import Admission, site_of


class Visitor:
    """Entrant that leaves the crowd when it is cut, as a connection does."""

    def __init__(self, crowd: Admission, address: str) -> None:
        self.crowd = crowd
        self.address = address
        self.reason = ""
        crowd.enter(self, address)

    def cut(self, reason: str) -> None:
        self.reason = reason
        self.crowd.leave(self)


def test_crowd_that_is_not_full_cuts_nobody() -> None:
    crowd = Admission(3)
    visitors = [Visitor(crowd, "a") for _ in range(3)]
    assert len(crowd) == 3
    assert not any(visitor.reason for visitor in visitors)


def test_oldest_of_the_most_crowded_address_is_cut() -> None:
    crowd = Admission(4)
    lonely = Visitor(crowd, "b")
    many = [Visitor(crowd, "a") for _ in range(3)]
    Visitor(crowd, "c")
    assert [bool(visitor.reason) for visitor in many] == [True, False, False]
    assert not lonely.reason
    assert len(crowd) == 4
    assert crowd.evicted == 1


def test_newcomer_of_the_most_crowded_address_replaces_one_of_its_own() -> None:
    crowd = Admission(3)
    lonely = Visitor(crowd, "b")
    first, second = Visitor(crowd, "a"), Visitor(crowd, "a")
    for _ in range(100):
        Visitor(crowd, "a")
    assert first.reason
    assert second.reason
    assert not lonely.reason
    assert len(crowd) == 3


def test_touched_entrant_counts_as_the_newest() -> None:
    crowd = Admission(2)
    first, second = Visitor(crowd, "a"), Visitor(crowd, "a")
    crowd.touch(first)
    Visitor(crowd, "a")
    assert second.reason
    assert not first.reason


def test_lowered_limit_takes_effect_with_the_next_newcomer() -> None:
    crowd = Admission(10)
    for _ in range(10):
        Visitor(crowd, "a")
    crowd.limit = 4
    newcomer = Visitor(crowd, "b")
    assert len(crowd) == 4
    assert not newcomer.reason


def test_leaving_twice_is_harmless() -> None:
    crowd = Admission(2)
    visitor = Visitor(crowd, "a")
    crowd.leave(visitor)
    crowd.leave(visitor)
    assert len(crowd) == 0


@given(st.integers(1, 6), st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=60))
def test_victim_is_always_of_a_largest_group(limit: int, steps: list[tuple[bool, int]]) -> None:
    crowd = Admission(limit)
    inside: list[Visitor] = []
    for enters, number in steps:
        if enters:
            sizes = [sum(visitor.address == str(address) for visitor in inside) for address in range(4)]
            inside.append(Visitor(crowd, str(number)))
            victims = [visitor for visitor in inside if visitor.reason]
            for victim in victims:
                assert sizes[int(victim.address)] == max(sizes)
                assert victim is next(visitor for visitor in inside if visitor.address == victim.address)
            inside = [visitor for visitor in inside if not visitor.reason]
        elif inside:
            crowd.leave(inside.pop(number % len(inside)))
        assert len(crowd) == len(inside) <= limit


def test_addresses_of_one_site_count_as_one() -> None:
    assert site_of(("127.0.0.1", 5), "tcp://*:1") == "127.0.0.1"
    assert site_of(("::ffff:127.0.0.1", 5, 0, 0), "tcp://*:1") == "127.0.0.1"
    assert site_of(("2001:db8::1", 5, 0, 0), "l") == site_of(("2001:db8::2:3", 6, 0, 0), "l")
    assert site_of(("2001:db8:0:1::1", 5, 0, 0), "l") != site_of(("2001:db8::1", 5, 0, 0), "l")
    assert site_of(("fe80::1%eth0", 5, 0, 2), "l") == "fe80::/64"
    assert site_of("", "ipc:///tmp/a") == "ipc:///tmp/a"
