"""Admission of connections: which one makes room for a new one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polydomo.web.connection_admission import ConnectionAdmission


class Visitor:
    """Entrant that leaves when it is cut."""

    def __init__(self, admission: ConnectionAdmission[Visitor], address: str, busy: bool = False) -> None:
        self.admission = admission
        self.reason = ""
        self.admitted = admission.admit(self, address)
        if busy:
            admission.set_busy(self)

    def cut(self, reason: str) -> None:
        self.reason = reason
        self.admission.leave(self)


def cut(visitors: list[Visitor]) -> list[bool]:
    return [bool(visitor.reason) for visitor in visitors]


def test_another_address_takes_a_place_of_the_most_crowded_one() -> None:
    admission: ConnectionAdmission[Visitor] = ConnectionAdmission(4)
    single = Visitor(admission, "b")
    many = [Visitor(admission, "a", busy=True) for _ in range(3)]
    assert Visitor(admission, "c").admitted
    assert cut([single, *many]) == [False, True, False, False]


def test_those_that_are_not_busy_go_first() -> None:
    admission: ConnectionAdmission[Visitor] = ConnectionAdmission(3)
    many = [Visitor(admission, "a", busy=True), Visitor(admission, "a"), Visitor(admission, "a", busy=True)]
    assert Visitor(admission, "b").admitted
    assert cut(many) == [False, True, False]


def test_the_one_used_longest_ago_goes_first_of_those() -> None:
    admission: ConnectionAdmission[Visitor] = ConnectionAdmission(3)
    many = [Visitor(admission, "a") for _ in range(3)]
    admission.set_busy(many[0])
    admission.set_idle(many[0])
    Visitor(admission, "b")
    assert cut(many) == [False, True, False]


def test_newcomer_of_the_most_crowded_address_takes_a_place_of_its_own_that_is_not_busy() -> None:
    admission: ConnectionAdmission[Visitor] = ConnectionAdmission(3)
    single = Visitor(admission, "b")
    many = [Visitor(admission, "a", busy=True), Visitor(admission, "a")]
    assert Visitor(admission, "a").admitted
    assert cut([single, *many]) == [False, False, True]


def test_newcomer_of_the_most_crowded_address_is_refused_if_all_its_own_are_busy() -> None:
    admission: ConnectionAdmission[Visitor] = ConnectionAdmission(3)
    single = Visitor(admission, "b")
    many = [Visitor(admission, "a", busy=True) for _ in range(2)]
    assert not Visitor(admission, "a").admitted
    assert cut([single, *many]) == [False, False, False]
    assert len(admission) == 3


def test_busy_connections_of_two_addresses_do_not_take_each_other_s_places_in_turn() -> None:
    admission: ConnectionAdmission[Visitor] = ConnectionAdmission(3)
    many = [Visitor(admission, "a", busy=True) for _ in range(2)] + [Visitor(admission, "b", busy=True)]
    assert not Visitor(admission, "b").admitted
    assert not any(cut(many))


def test_moved_entrant_counts_where_it_is_now() -> None:
    admission: ConnectionAdmission[Visitor] = ConnectionAdmission(4)
    proxied = [Visitor(admission, f"proxied {number}") for number in range(4)]
    for one in proxied:
        admission.set_busy(one)
    for one in proxied[:3]:
        admission.move(one, "a")
    assert Visitor(admission, "b").admitted
    assert cut(proxied) == [True, False, False, False]


@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.sampled_from("ercvm"), st.sampled_from("abcd"), st.integers(0, 30)), max_size=60),
)
def test_crowd_never_has_more_than_its_limit_and_forgets_nobody(
    limit: int, steps: list[tuple[str, str, int]]
) -> None:
    admission: ConnectionAdmission[Visitor] = ConnectionAdmission(limit)
    made: list[Visitor] = []
    for step, address, number in steps:
        if step == "e":
            made.append(Visitor(admission, address))
        elif made:
            one = made[number % len(made)]
            if step == "m":
                admission.move(one, address)
            else:
                {"r": admission.leave, "c": admission.set_busy, "v": admission.set_idle}[step](one)
        assert len(admission) <= limit
    for one in made:
        admission.leave(one)
    assert len(admission) == 0
    assert not admission._idle
    assert not admission._busy
