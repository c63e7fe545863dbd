"""Managers, devices and workers in any arrangement, up to three levels of devices: every job runs once, every answer
reaches its manager, nothing stays locked, no READY counts twice."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polydomo.core.policy import Policy
from polydomo.dialects.wmp.session import WmpSession
from polydomo.dialects.wmp.worker import LOCK
from tests.support.wmp import Box, Hand, Manager, World, connect

PLANS = st.tuples(
    st.integers(0, 2**32),  # seed
    st.integers(1, 4),  # managers
    st.lists(st.integers(1, 3), max_size=3),  # devices on each level
    st.integers(1, 6),  # workers
    st.integers(1, 4),  # slots of each
    st.integers(1, 40),  # jobs
)


def build(
    seed: int, managers: int, levels: list[int], workers: int, slots: int, policy: Policy | None = None
) -> World:
    """Everybody is connected to one or more of the level above."""
    world = World(seed)
    for number in range(managers):
        Manager(world, b"m%d" % number, policy)
    above: list[Manager | Box] = list(world.managers)
    for level, devices in enumerate(levels):
        boxes = [Box(world, b"d%d.%d" % (level, number)) for number in range(devices)]
        for number, box in enumerate(boxes):
            for upper in _some(world, above, number):
                connect(box, upper)
        # Nobody above must be left without anybody below, or its jobs would wait for ever.
        for upper in above:
            if not _has_below(upper):
                connect(boxes[0], upper)
        above = list(boxes)
    for number in range(workers):
        hand = Hand(world, b"w%d" % number, slots)
        for upper in _some(world, above, number):
            connect(hand, upper)
    for upper in above:
        if not _has_below(upper):
            connect(world.workers[0], upper)
    return world


def _some(world: World, above: list[Manager | Box], number: int) -> list[Manager | Box]:
    first = above[number % len(above)]
    return [upper for upper in above if upper is first or world.dice.random() < 0.5]


def _has_below(upper: Manager | Box) -> bool:
    return bool(upper.links if isinstance(upper, Manager) else upper.device.below)


def answered(world: World) -> int:
    return sum(sum(manager.finals.values()) for manager in world.managers)


def held_at_most_once(world: World) -> None:
    for manager in world.managers:
        for link in manager.links:
            for session in link.sessions():
                assert isinstance(session, WmpSession)
                for worker in session.workers.values():
                    slots = next(hand.side.slots for hand in world.workers if hand.name == worker.core.name)
                    ready = worker.wakeable.ready_slots
                    assert 0 <= ready <= slots
                    assert len(worker.wakeable._open) <= max(ready, slots)


def settled(world: World) -> None:
    """Behind the last answer: nothing is locked, nothing in hand, nothing counted on."""
    world.run(20.0)
    for hand in world.workers:
        assert not hand.side.locks
        assert not hand.side.held
    for manager in world.managers:
        assert manager.broker.accounting.active == 0
        for service in manager.broker.services.values():
            assert service.queue.waiting == service.running == 0
    held_at_most_once(world)


@pytest.mark.clause("WMP-G-01")
@pytest.mark.clause("WMP-G-04")
@settings(max_examples=60, deadline=None)
@given(PLANS)
def test_every_job_runs_once_and_every_answer_reaches_its_manager(
    plan: tuple[int, int, list[int], int, int, int],
):
    seed, managers, levels, workers, slots, jobs = plan
    world = build(seed, managers, levels, workers, slots)
    for number in range(jobs):
        manager = world.managers[number % managers]
        world.after(world.dice.random() * 0.2, lambda manager=manager: manager.ask())  # type: ignore[misc]
    assert world.run(60.0, lambda: answered(world) == jobs), f"{answered(world)} of {jobs}"
    settled(world)
    runs: Counter[tuple[bytes, bytes]] = Counter()
    for hand in world.workers:
        runs.update(hand.runs)
        assert hand.most <= slots
    assert len(runs) == jobs
    assert set(runs.values()) <= {1}
    for manager in world.managers:
        assert set(manager.finals.values()) <= {1}
        assert manager.failures == []


@settings(max_examples=40, deadline=None)
@given(PLANS, st.floats(0.0, 0.3), st.floats(0.0, 0.3))
def test_the_same_on_a_network_that_repeats_and_reorders(
    plan: tuple[int, int, list[int], int, int, int], duplicates: float, disorder: float
):
    """What was done twice would be seen: an attempt is one execution, and its answer is taken once."""
    seed, managers, levels, workers, slots, jobs = plan
    world = build(seed, managers, levels, workers, slots)
    world.run(0.1)
    world.duplicates, world.disorder = duplicates, disorder
    for number in range(jobs):
        world.managers[number % managers].ask()
    assert world.run(300.0, lambda: answered(world) == jobs), f"{answered(world)} of {jobs}"
    world.duplicates = world.disorder = 0.0
    settled(world)
    for hand in world.workers:
        assert set(hand.runs.values()) <= {1}
    for manager in world.managers:
        assert set(manager.finals.values()) <= {1}
        assert manager.failures == []


@settings(max_examples=40, deadline=None)
@given(PLANS, st.data())
def test_workers_and_devices_that_come_and_go_cost_no_job(
    plan: tuple[int, int, list[int], int, int, int], data: st.DataObject
):
    seed, managers, levels, workers, slots, jobs = plan
    world = build(seed, managers, levels, workers, slots, Policy(retries=1000, wait=3600.0))
    doomed = [Hand(world, b"x%d" % number, slots) for number in range(3)]
    cuts = []
    for number, hand in enumerate(doomed):
        lowest: list[Manager | Box] = (
            [box for box in world.devices if box.name.startswith(b"d%d" % (len(levels) - 1))]
            if levels
            else list(world.managers)
        )
        cuts.append(connect(hand, lowest[number % len(lowest)]))
    for number in range(jobs):
        world.managers[number % managers].ask()
    for hand, cut in zip(doomed, cuts, strict=True):
        world.run(data.draw(st.floats(0.0, 0.03)))
        hand.dead = True
        cut()
        world.workers.remove(hand)
    assert world.run(600.0, lambda: answered(world) == jobs), f"{answered(world)} of {jobs}"
    settled(world)
    for manager in world.managers:
        assert set(manager.finals.values()) <= {1}
        assert manager.failures == []


def test_a_device_killed_and_restarted_mid_job():
    """Its workers' jobs are lost to their manager, which gives them out again; late answers find nobody."""
    world = World()
    manager = Manager(world, b"m")
    box = Box(world, b"d")
    hand = Hand(world, b"w", slots=2, seconds=0.5)
    up = connect(box, manager)
    down = connect(hand, box)
    manager.ask()
    world.run(0.1)
    assert len(hand.side.held) == 1
    up()
    down()
    world.devices.remove(box)
    world.run(0.2)
    again = Box(world, b"d")
    connect(again, manager)
    connect(hand, again)
    assert world.run(30.0, lambda: manager.finals[1] == 1)
    world.run(5.0)
    assert manager.finals == {1: 1}
    assert sum(hand.runs.values()) == 2  # at least once
    settled(world)


def test_a_manager_lost_after_give_costs_a_place_only_until_the_lock_ends():
    world = World()
    hand = Hand(world, b"w")
    box = Box(world, b"d")
    connect(hand, box)
    lost, other = Manager(world, b"m0"), Manager(world, b"m1")
    cut = connect(box, lost)
    connect(box, other)
    world.run(0.1)
    lost.ask()
    assert world.run(1.0, lambda: bool(hand.side.locks))
    cut()
    world.managers.remove(lost)
    other.ask()
    assert world.run(LOCK + 1.0, lambda: other.finals[1] == 1)
    settled(world)


def test_a_worker_lost_after_take():
    world = World()
    manager = Manager(world, b"m")
    box = Box(world, b"d")
    connect(box, manager)
    hands = [Hand(world, b"w%d" % number, seconds=1.0) for number in range(2)]
    cuts = [connect(hand, box) for hand in hands]
    manager.ask()
    assert world.run(1.0, lambda: any(hand.side.held for hand in hands))
    busy = 0 if hands[0].side.held else 1
    hands[busy].dead = True
    cuts[busy]()
    world.workers.remove(hands[busy])
    assert world.run(10.0, lambda: manager.finals[1] == 1)
    settled(world)


def test_devices_in_a_circle_are_harmless():
    world = World()
    manager = Manager(world, b"m")
    boxes = [Box(world, b"d%d" % number) for number in range(3)]
    connect(boxes[0], manager)
    for number in range(3):
        connect(boxes[number], boxes[(number + 1) % 3])
    hand = Hand(world, b"w")
    connect(hand, boxes[1])
    world.run(1.0)
    assert world.sent["READY"] < 20
    assert sum(box.device.loops for box in boxes) > 0
    for _ in range(5):
        manager.ask()
    assert world.run(30.0, lambda: answered(world) == 5)
    settled(world)


@pytest.mark.parametrize("levels", [[], [1], [1, 1], [1, 1, 1]])
def test_what_a_job_costs_in_messages(levels: list[int]):
    """Five on each hop, as the specification draws them."""
    world = build(7, 1, levels, 1, 1)
    world.run(0.5)
    before = sum(world.sent.values())
    for number in range(20):
        world.managers[0].ask()
        assert world.run(1.0, lambda number=number: answered(world) == number + 1)  # type: ignore[misc]
        world.run(0.01)
    hops = len(levels) + 1
    assert sum(world.sent.values()) - before <= 20 * 5 * hops + 2 * hops
