"""core: the table of a job's states is complete, and no state is a trap."""

from __future__ import annotations

import pytest

from polydomo.core.states import (
    ENDS,
    EVENTS,
    HELD,
    IMPOSSIBLE,
    NEXT,
    READY,
    RELEASE,
    STATES,
    TRANSITIONS,
    draw,
)


def reachable(start: int) -> set[int]:
    """Every state that a job can come to from `start`."""
    found, open_ = {start}, [start]
    while open_:
        for after in TRANSITIONS[open_.pop()].values():
            if after not in found:
                found.add(after)
                open_.append(after)
    return found


def test_every_state_has_a_row_and_is_reached_from_ready() -> None:
    assert set(TRANSITIONS) == set(range(len(STATES)))
    assert reachable(READY) == set(range(len(STATES)))


@pytest.mark.parametrize("state", ENDS, ids=lambda state: STATES[state])
def test_an_end_is_final(state: int) -> None:
    assert TRANSITIONS[state] == {}


@pytest.mark.parametrize("state", HELD, ids=lambda state: STATES[state])
def test_a_hold_ends_only_by_its_release(state: int) -> None:
    assert TRANSITIONS[state] == {RELEASE: READY}


@pytest.mark.parametrize(
    "state", [state for state in range(len(STATES)) if state not in ENDS], ids=lambda state: STATES[state]
)
def test_every_other_state_leads_to_every_end(state: int) -> None:
    assert reachable(state) >= set(ENDS)


def test_the_tuples_used_at_run_time_say_what_the_table_says() -> None:
    for state, row in enumerate(NEXT):
        assert len(row) == len(EVENTS)
        assert {event: after for event, after in enumerate(row) if after != IMPOSSIBLE} == TRANSITIONS[state]


def test_the_diagram_has_every_transition() -> None:
    arrows = {tuple(line.partition(":")[0].split(" --> ")) for line in draw().splitlines() if "-->" in line}
    named = {(start.strip(), end.strip()) for start, end in arrows}
    for state, events in TRANSITIONS.items():
        assert {(STATES[state], STATES[after]) for after in events.values()} <= named
    assert {(STATES[state], "[*]") for state in ENDS} <= named
