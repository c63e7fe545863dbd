"""web/crowd: who makes room for a newcomer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polydomo.web.crowd import Crowd


class Visitor:
    """Entrant that leaves when it is cut."""

    def __init__(self, crowd: Crowd[Visitor], address: str, busy: bool = False) -> None:
        self.crowd = crowd
        self.reason = ""
        self.admitted = crowd.admit(self, address)
        if busy:
            crowd.occupy(self)

    def cut(self, reason: str) -> None:
        self.reason = reason
        self.crowd.leave(self)


def cut(visitors: list[Visitor]) -> list[bool]:
    return [bool(visitor.reason) for visitor in visitors]


def test_another_address_takes_a_place_of_the_most_crowded_one() -> None:
    crowd: Crowd[Visitor] = Crowd(4)
    single = Visitor(crowd, "b")
    many = [Visitor(crowd, "a", busy=True) for _ in range(3)]
    assert Visitor(crowd, "c").admitted
    assert cut([single, *many]) == [False, True, False, False]


def test_those_that_are_not_busy_go_first() -> None:
    crowd: Crowd[Visitor] = Crowd(3)
    many = [Visitor(crowd, "a", busy=True), Visitor(crowd, "a"), Visitor(crowd, "a", busy=True)]
    assert Visitor(crowd, "b").admitted
    assert cut(many) == [False, True, False]


def test_the_one_used_longest_ago_goes_first_of_those() -> None:
    crowd: Crowd[Visitor] = Crowd(3)
    many = [Visitor(crowd, "a") for _ in range(3)]
    crowd.occupy(many[0])
    crowd.vacate(many[0])
    Visitor(crowd, "b")
    assert cut(many) == [False, True, False]


def test_newcomer_of_the_most_crowded_address_takes_a_place_of_its_own_that_is_not_busy() -> None:
    crowd: Crowd[Visitor] = Crowd(3)
    single = Visitor(crowd, "b")
    many = [Visitor(crowd, "a", busy=True), Visitor(crowd, "a")]
    assert Visitor(crowd, "a").admitted
    assert cut([single, *many]) == [False, False, True]


def test_newcomer_of_the_most_crowded_address_is_refused_if_all_its_own_are_busy() -> None:
    crowd: Crowd[Visitor] = Crowd(3)
    single = Visitor(crowd, "b")
    many = [Visitor(crowd, "a", busy=True) for _ in range(2)]
    assert not Visitor(crowd, "a").admitted
    assert cut([single, *many]) == [False, False, False]
    assert len(crowd) == 3


def test_busy_connections_of_two_addresses_do_not_take_each_other_s_places_in_turn() -> None:
    crowd: Crowd[Visitor] = Crowd(3)
    many = [Visitor(crowd, "a", busy=True) for _ in range(2)] + [Visitor(crowd, "b", busy=True)]
    assert not Visitor(crowd, "b").admitted
    assert not any(cut(many))


def test_moved_entrant_counts_where_it_is_now() -> None:
    crowd: Crowd[Visitor] = Crowd(4)
    proxied = [Visitor(crowd, f"proxied {number}") for number in range(4)]
    for one in proxied:
        crowd.occupy(one)
    for one in proxied[:3]:
        crowd.move(one, "a")
    assert Visitor(crowd, "b").admitted
    assert cut(proxied) == [True, False, False, False]


@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.sampled_from("ercvm"), st.sampled_from("abcd"), st.integers(0, 30)), max_size=60),
)
def test_crowd_never_has_more_than_its_limit_and_forgets_nobody(
    limit: int, steps: list[tuple[str, str, int]]
) -> None:
    crowd: Crowd[Visitor] = Crowd(limit)
    made: list[Visitor] = []
    for step, address, number in steps:
        if step == "e":
            made.append(Visitor(crowd, address))
        elif made:
            one = made[number % len(made)]
            if step == "m":
                crowd.move(one, address)
            else:
                {"r": crowd.leave, "c": crowd.occupy, "v": crowd.vacate}[step](one)
        assert len(crowd) <= limit
    for one in made:
        crowd.leave(one)
    assert len(crowd) == 0
    assert not crowd._idle
    assert not crowd._busy
