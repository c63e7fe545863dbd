"""Short runs of every fuzz target: mutated valid inputs, and Hypothesis' inputs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.mutate import Mutator
from tests.fuzz.targets import TARGETS
from tests.support.effort import EFFORT, examples

ROOT = Path(__file__).resolve().parents[2]
INPUTS = 150


@pytest.mark.parametrize("name", TARGETS)
def test_mutated(name: str) -> None:
    target = TARGETS[name]
    for data in target.seeds:
        target.run(data)
    mutator = Mutator(target.seeds, target.words, EFFORT)
    for _ in range(INPUTS * EFFORT):
        target.run(mutator.next())


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.data())
@examples(30)
def test_generated(name: str, data: st.DataObject) -> None:
    target = TARGETS[name]
    pieces = st.one_of(st.sampled_from([*target.seeds, *target.words]), st.binary(max_size=20))
    target.run(b"".join(data.draw(st.lists(pieces, max_size=6))))


def test_a_target_says_what_it_promises() -> None:
    for target in TARGETS.values():
        assert len((target.run.__doc__ or "").split()) >= 8


def test_the_same_seed_gives_the_same_inputs() -> None:
    target = TARGETS["zmtp_server"]
    one, other = (Mutator(target.seeds, target.words, 5) for _ in range(2))
    assert [one.next() for _ in range(50)] == [other.next() for _ in range(50)]


def test_a_long_run_is_one_command() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "greeting", "--seconds", "0.1", "--seed", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "greeting: " in done.stdout
