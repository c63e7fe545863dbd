"""core: histories nobody would think of, checked after every step (see support/simulation.py)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.effort import EFFORT, examples
from tests.support.simulation import BytesDice, Dice, World

SEEDS = 40
STEPS = 800


@pytest.mark.parametrize("seed", range(SEEDS))
def test_histories(seed: int) -> None:
    for number in range(EFFORT):
        World(Dice(seed + SEEDS * number)).run(STEPS)


@given(st.binary(max_size=300))
@examples(60)
def test_short_histories_that_shrink(data: bytes) -> None:
    """The same world, driven by Hypothesis: what fails here is cut down to the steps that matter."""
    World(BytesDice(data)).run(1000)


def test_the_same_dice_give_the_same_history() -> None:
    histories = []
    for _ in range(2):
        world = World(Dice(7))
        world.run(STEPS)
        histories.append(
            (
                world.attempts,
                world.broker.accounting.totals.done,
                world.broker.accounting.totals.failed,
                world.broker.accounting.totals.retried,
            )
        )
    assert histories[0] == histories[1]


def test_the_world_is_worth_simulating() -> None:
    """Enough happens in it: jobs done, lost, refused, passed on and answered by strangers."""
    worlds = [World(Dice(seed)) for seed in range(8)]
    for world in worlds:
        world.run(STEPS)
    assert sum(world.broker.accounting.strays for world in worlds) > 50
    for count in ("done", "failed", "retried", "refused"):
        assert sum(getattr(world.broker.accounting.totals, count) for world in worlds) > 50, count
