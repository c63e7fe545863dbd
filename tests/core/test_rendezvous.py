"""core: a service's resources among its workers."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from polydomo.core.rendezvous import PRIME, RendezvousHash, _number
from tests.support.effort import examples

ALL = 1 << 40  # a budget that is never used up


def named(prefix: str, count: int) -> list[bytes]:
    return [b"%s-%d" % (prefix.encode(), number) for number in range(count)]


def shared(resources: list[bytes], workers: list[bytes]) -> RendezvousHash:
    shares = RendezvousHash()
    shares.set_resources(resources)
    for worker in workers:
        shares.join(worker)
    assert shares.settle(ALL)
    return shares


def naive(resource: bytes, workers: list[bytes]) -> bytes | None:
    """The definition: the worker with the highest score."""
    return max(
        workers, key=lambda worker: (_number(resource) * _number(worker) % PRIME, worker), default=None
    )


def owners(shares: RendezvousHash, resources: list[bytes]) -> dict[bytes, bytes | None]:
    return {resource: shares.owner(resource) for resource in resources}


def consistent(shares: RendezvousHash, resources: list[bytes], workers: list[bytes]) -> None:
    """`of` and `owner` say the same, and what the definition says."""
    assert owners(shares, resources) == {resource: naive(resource, workers) for resource in resources}
    held = {resource: worker for worker in workers for resource in shares.of(worker)}
    assert held == ({resource: naive(resource, workers) for resource in resources} if workers else {})


def test_without_workers_nobody_has_anything() -> None:
    shares = shared(named("r", 3), [])
    assert shares.owner(b"r-0") is None
    assert shares.of(b"w-0") == []
    assert shares.drain() == []


def test_a_single_worker_has_everything() -> None:
    shares = shared(named("r", 3), [b"w"])
    assert shares.of(b"w") == named("r", 3)
    assert sorted(shares.drain()) == [(resource, None, b"w") for resource in named("r", 3)]
    assert shares.drain() == []


def test_an_unknown_resource_has_no_owner_and_an_unknown_worker_leaves_without_a_trace() -> None:
    shares = shared(named("r", 3), [b"w"])
    shares.leave(b"x")
    assert shares.settle(1)
    assert shares.owner(b"x") is None


def test_joining_twice_is_joining_once() -> None:
    shares = shared(named("r", 10), [b"v", b"w", b"v"])
    consistent(shares, named("r", 10), [b"v", b"w"])


def test_a_worker_that_comes_back_has_its_share_again_and_it_is_said() -> None:
    shares = shared(named("r", 40), named("w", 4))
    share = shares.of(b"w-1")
    shares.drain()
    shares.leave(b"w-1")
    shares.join(b"w-1")
    assert shares.settle(ALL)
    assert shares.of(b"w-1") == share
    assert sorted(shares.drain()) == [(resource, None, b"w-1") for resource in share]


def test_a_resource_that_is_gone_is_taken_from_its_worker_and_the_others_stay() -> None:
    resources = named("r", 40)
    shares = shared(resources, named("w", 4))
    before = owners(shares, resources)
    shares.drain()
    shares.set_resources([*resources[1:], b"new"])
    assert shares.settle(ALL)
    assert shares.owner(b"r-0") is None
    assert owners(shares, resources[1:]) == {name: before[name] for name in resources[1:]}
    assert shares.drain() == [(b"r-0", before[b"r-0"], None), (b"new", None, shares.owner(b"new"))]


def test_the_owner_is_right_before_anything_is_settled() -> None:
    shares = RendezvousHash()
    shares.set_resources(named("r", 50))
    for worker in named("w", 5):
        shares.join(worker)
    consistent_owner = {resource: naive(resource, named("w", 5)) for resource in named("r", 50)}
    assert owners(shares, named("r", 50)) == consistent_owner
    shares.leave(b"w-2")
    rest = [worker for worker in named("w", 5) if worker != b"w-2"]
    assert owners(shares, named("r", 50)) == {resource: naive(resource, rest) for resource in named("r", 50)}


@given(st.integers(1, 12), st.integers(0, 60))
@examples(60)
def test_a_leaving_worker_moves_only_its_own(workers: int, resources: int) -> None:
    names = named("r", resources)
    shares = shared(names, named("w", workers))
    before = owners(shares, names)
    shares.drain()
    shares.leave(b"w-0")
    assert shares.settle(ALL)
    after = owners(shares, names)
    assert all(after[name] == before[name] for name in names if before[name] != b"w-0")
    assert {name for name, _, _ in shares.drain()} <= {name for name in names if before[name] == b"w-0"}


@given(st.integers(0, 12), st.integers(0, 60))
@examples(60)
def test_a_joining_worker_takes_only_what_it_wins(workers: int, resources: int) -> None:
    names = named("r", resources)
    shares = shared(names, named("w", workers))
    before = owners(shares, names)
    shares.drain()
    shares.join(b"new")
    assert shares.settle(ALL)
    after = owners(shares, names)
    assert all(after[name] in (before[name], b"new") for name in names)
    assert sorted(shares.drain()) == [
        (name, before[name], b"new") for name in sorted(names) if after[name] == b"new"
    ]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["join", "leave", "owner"]), st.integers(0, 9)),
        st.tuples(st.just("settle"), st.integers(0, 40)),
        st.tuples(st.just("resources"), st.integers(0, 25)),
    ),
    max_size=60,
)


@given(STEPS)
@examples(300)
def test_whatever_happens_in_whatever_order_the_result_is_the_definition_s(
    steps: list[tuple[str, int]],
) -> None:
    shares = RendezvousHash()
    workers: dict[bytes, None] = {}
    resources: list[bytes] = []
    holder: dict[bytes, bytes] = {}
    for what, number in steps:
        if what == "join":
            shares.join(b"w-%d" % number)
            workers[b"w-%d" % number] = None
        elif what == "leave":
            shares.leave(b"w-%d" % number)
            workers.pop(b"w-%d" % number, None)
            holder = {name: worker for name, worker in holder.items() if worker != b"w-%d" % number}
        elif what == "owner":
            resource = b"r-%d" % number
            expected = naive(resource, list(workers)) if resource in resources else None
            assert shares.owner(resource) == expected
        elif what == "resources":
            resources = named("r", number)
            shares.set_resources(resources)
        else:
            before = shares.compared
            shares.settle(number)
            assert shares.compared - before <= number
        # Whoever follows `moved` knows who has what.
        for resource, old, new in shares.drain():
            assert holder.pop(resource, None) == old
            if new is not None:
                holder[resource] = new
        for worker in workers:
            assert shares.of(worker) == sorted(name for name, other in holder.items() if other == worker)
    assert shares.settle(ALL)
    consistent(shares, resources, list(workers))


def test_the_order_of_joining_does_not_matter() -> None:
    names = named("r", 200)
    forth, back = shared(names, named("w", 20)), shared(names[::-1], named("w", 20)[::-1])
    assert owners(forth, names) == owners(back, names)


def test_another_process_comes_to_the_same_result() -> None:
    program = (
        "from tests.core.test_rendezvous import *;"
        "shares = shared(named('r', 100), named('w', 9));"
        "print([shares.owner(name) for name in named('r', 100)])"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    shares = shared(named("r", 100), named("w", 9))
    assert told.stdout.strip() == str([shares.owner(name) for name in named("r", 100)])


def test_workers_that_come_and_go_for_ever_leave_nothing_behind() -> None:
    names = named("r", 20)
    shares = shared(names, [b"steady"])
    for number in range(2_000):
        shares.join(b"w-%d" % number)
        shares.settle(7)
        shares.leave(b"w-%d" % number)
    assert len(shares._joined) < 200
    assert shares.settle(ALL)
    consistent(shares, names, [b"steady"])


def test_two_workers_with_the_same_number_share() -> None:
    """Not one of them has all. Such two are found soon: the numbers have 30 bits."""
    seen: dict[int, bytes] = {}
    one = two = b""
    for name in named("w", 200_000):
        one, two = seen.setdefault(_number(name), name), name
        if one != two:
            break
    assert one != two
    forth, back = shared(named("r", 100), [one, two]), shared(named("r", 100), [two, one])
    assert owners(forth, named("r", 100)) == owners(back, named("r", 100))
    assert 30 < len(forth.of(one)) < 70
    assert len(forth.of(one)) + len(forth.of(two)) == 100


def test_shares_are_fair() -> None:
    shares = shared(named("device", 5_000), named("worker", 10))
    sizes = [len(shares.of(worker)) for worker in named("worker", 10)]
    assert sum(sizes) == 5_000
    # Binomial: 500 each, standard deviation 21.
    assert min(sizes) > 390
    assert max(sizes) < 610


def test_a_thousand_workers_and_twenty_thousand_resources() -> None:
    """Counted, not timed: one comparison per resource and worker, and a leave costs the leaver's share only."""
    resources, workers = named("device", 20_000), named("worker", 1_000)
    shares = shared(resources, workers)
    assert shares.compared == 20_000 * 1_000
    assert sum(len(shares.of(worker)) for worker in workers) == 20_000
    assert all(shares.owner(name) == naive(name, workers) for name in resources[::4_000])
    shares.drain()

    share = shares.of(b"worker-500")
    assert 0 < len(share) < 100
    before = shares.compared
    shares.leave(b"worker-500")
    assert shares.settle(ALL)
    assert shares.compared - before == len(share) * 1_000
    assert sorted(name for name, _, _ in shares.drain()) == share

    before = shares.compared
    shares.join(b"worker-500")
    assert not shares.settle(1_000)
    assert shares.settle(ALL)
    assert shares.compared - before == 20_000
    assert shares.of(b"worker-500") == share

    before = shares.compared
    for name in resources:
        shares.owner(name)
    assert shares.compared == before  # routing costs a look into a dictionary
