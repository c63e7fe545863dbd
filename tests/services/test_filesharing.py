"""services/filesharing: norfab's service, answered by the broker itself."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from polydomo.core.model import Job
from polydomo.core.pieces import unpack
from polydomo.core.targets import ALL, NAMES, Target
from polydomo.core.tracked_job import Options
from polydomo.services.files import Files
from polydomo.services.filesharing import MOST_REQUESTED, SERVICE, WORKER, FileSharing
from polydomo.services.folder import Folder
from polydomo.services.management import ManagementService
from polydomo.wire.frames import join, split
from tests.services.support import Asker, ByHand
from tests.support import invariants
from tests.support.access import manage
from tests.support.core import Bench

DATA = bytes(range(256)) * 40
IDLE = 30.0


class Set:
    """A broker that shares one folder, and a client."""

    def __init__(self, folder: Path) -> None:
        self.hand = ByHand()
        self.bench = Bench()
        self.broker = self.bench.broker
        self.management = ManagementService(self.broker, "house")
        self.files = Files(Folder(str(folder)), self.hand, transfers=2)
        self.sharing = FileSharing(self.management.authorizer, self.files, IDLE)
        self.asker = Asker(self.broker)

    def fetch(self, **kwargs: Any) -> Job:
        job = self.asker.send(SERVICE, "fetch_file", **({"url": "nf://data.bin"} | kwargs))
        self.hand.settle()
        return job

    def put(self, job: Job, wish: object) -> int:
        reached = self.broker.put(job, [], join([json.dumps(wish).encode()]))
        self.hand.settle()
        return reached

    def check_over(self) -> None:
        assert self.files.transfers == 0
        assert not self.sharing.transfers
        assert self.broker.accounting.active == 0
        invariants.check(self.broker)


@pytest.fixture
def stage(tmp_path: Path) -> Set:
    (tmp_path / "data.bin").write_bytes(DATA)
    (tmp_path / "empty").write_bytes(b"")
    return Set(tmp_path)


def test_a_file_as_norfabs_client_fetches_it(stage: Set) -> None:
    """The first chunk by itself, then one for each PUT, in order, then the result."""
    job = stage.fetch(chunk_size=3000, offset=0)
    assert stage.asker.pieces == [DATA[:3000]]
    for offset in (3000, 6000, 9000):
        assert not stage.asker.answers
        assert stage.put(job, {"offset": offset}) == 1
    assert b"".join(stage.asker.pieces) == DATA
    assert stage.asker.answers == [[b"true"]]
    stage.check_over()


def test_wishes_ahead_are_answered_in_their_order(stage: Set) -> None:
    job = stage.asker.send(SERVICE, "fetch_file", url="nf://data.bin", chunk_size=3000)
    for offset in (3000, 6000, 9000):
        stage.broker.put(job, [], join([json.dumps({"offset": offset}).encode()]))
    stage.hand.settle()
    assert b"".join(stage.asker.pieces) == DATA
    assert stage.asker.answers == [[b"true"]]
    stage.check_over()


def test_going_on_in_the_middle(stage: Set) -> None:
    stage.fetch(offset=10_000, chunk_size=3000)
    assert b"".join(stage.asker.pieces) == DATA[10_000:]
    assert stage.asker.answers == [[b"true"]]
    stage.check_over()


def test_small_and_empty_files_come_whole(stage: Set) -> None:
    stage.fetch()
    assert b"".join(stage.asker.pieces) == DATA
    stage.fetch(url="nf://empty")
    assert b"".join(stage.asker.pieces) == DATA
    assert stage.asker.answers == [[b"true"], [b"true"]]
    stage.check_over()


def test_details_as_norfabs_client_reads_them(stage: Set) -> None:
    answer = stage.asker.ask(stage.hand, SERVICE, "file_details", url=["nf://data.bin", "nf://nobody"])
    assert not answer["nf://data.bin"]["failed"]
    assert answer["nf://data.bin"]["result"]["md5hash"] == hashlib.md5(DATA).hexdigest()
    assert answer["nf://data.bin"]["result"]["size_bytes"] == len(DATA)
    assert answer["nf://nobody"]["failed"]


def test_other_tasks_norfabs_own_tools_call(stage: Set) -> None:
    ask = stage.asker.ask
    assert ask(stage.hand, SERVICE, "list_files", url="nf://") == ["data.bin", "empty"]
    assert ask(stage.hand, SERVICE, "walk", url="nf://") == ["nf://data.bin", "nf://empty"]
    assert ask(stage.hand, SERVICE, "get_status") == "OK"
    assert "polydomo" in ask(stage.hand, SERVICE, "get_version")
    assert ask(stage.hand, SERVICE, "get_inventory")["service"] == "filesharing"
    assert "no task" in stage.asker.refused(stage.hand, SERVICE, "resolve_git_url", url=[])


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"url": "nf://nobody"}, "not found"),
        ({"url": "nf://../x"}, "leads out"),
        ({"offset": -1}, "offset"),
        ({"chunk_size": 1 << 30}, "chunk_size"),
        ({"chunk_timeout": "long"}, "chunk_timeout"),
    ],
)
def test_wrong_wishes(stage: Set, kwargs: dict[str, Any], words: str) -> None:
    stage.fetch(**kwargs)
    assert words in stage.asker.failures[0]
    stage.check_over()


@pytest.mark.parametrize("wish", [{}, {"offset": -1}, {"offset": "1"}, {"offset": None}, [], 7, "x"])
def test_a_put_that_is_no_wish_ends_it(stage: Set, wish: object) -> None:
    stage.put(stage.fetch(chunk_size=3000), wish)
    assert len(stage.asker.failures) == 1
    stage.check_over()


def test_more_wishes_than_anybody_needs(stage: Set) -> None:
    job = stage.fetch(chunk_size=1)
    for _ in range(MOST_REQUESTED + 2):
        stage.broker.put(job, [], join([b'{"offset": 5}']))
    stage.hand.settle()
    assert "not yet sent" in stage.asker.failures[0]
    stage.check_over()


def test_a_client_that_asks_for_nothing_is_given_up(stage: Set) -> None:
    job = stage.fetch(chunk_size=3000, chunk_timeout=5)
    stage.bench.at(4.9)
    stage.put(job, {"offset": 3000})
    stage.bench.at(9.8)
    assert not stage.asker.failures
    stage.bench.at(9.95)
    assert "within 5 s" in stage.asker.failures[0]
    stage.check_over()
    assert stage.put(job, {"offset": 6000}) == 0


def test_nobody_may_wait_longer_than_the_broker_allows(stage: Set) -> None:
    stage.fetch(chunk_size=3000, chunk_timeout=10**6)
    stage.bench.at(IDLE + 0.1)
    assert f"within {IDLE:g} s" in stage.asker.failures[0]
    stage.check_over()


def test_more_than_may_be_sent_at_once_wait_for_their_turn(stage: Set) -> None:
    jobs = [stage.fetch(chunk_size=len(DATA) - 1) for _ in range(3)]
    assert len(stage.asker.pieces) == 2
    stage.put(jobs[0], {"offset": len(DATA) - 1})
    assert len(stage.asker.pieces) == 4
    stage.put(jobs[1], {"offset": len(DATA) - 1})
    stage.put(jobs[2], {"offset": len(DATA) - 1})
    assert len(stage.asker.answers) == 3
    stage.check_over()


def test_a_client_that_goes_away(stage: Set) -> None:
    stage.fetch(chunk_size=3000)
    stage.broker.client_gone(stage.asker.core)
    stage.bench.at(6.0)
    stage.check_over()


def test_a_cancelled_transfer(stage: Set) -> None:
    body = join(
        [json.dumps({"task": "fetch_file", "kwargs": {"url": "nf://data.bin", "chunk_size": 9}}).encode()]
    )
    job = stage.broker.submit(stage.asker.core, SERVICE, body, b"", Options(uid="u1"))
    assert job is not None
    for settled in (False, True):  # while a thread reads, and while it waits
        if settled:
            job = stage.broker.submit(stage.asker.core, SERVICE, body, b"", Options(uid="u2"))
            assert job is not None
            stage.hand.settle()
        assert stage.broker.cancel(job)
        stage.hand.settle()
        assert stage.asker.failures == ["it was cancelled"] * (1 + settled)
        assert stage.sharing.worker.free() == 2, "it does not count as late"
    stage.check_over()


def test_the_file_stays_the_same_one_while_it_is_sent(stage: Set, tmp_path: Path) -> None:
    job = stage.fetch(chunk_size=9000)
    (tmp_path / "new").write_bytes(b"x" * len(DATA))
    (tmp_path / "new").rename(tmp_path / "data.bin")
    stage.put(job, {"offset": 9000})
    assert b"".join(stage.asker.pieces) == DATA


def test_the_broker_stops(stage: Set) -> None:
    stage.fetch(chunk_size=3000)
    stage.sharing.close()
    assert stage.asker.failures == ["the broker stops"]
    stage.check_over()


@pytest.mark.parametrize("target", [Target(ALL), Target(NAMES, [WORKER])])
def test_addressed_to_all_or_by_its_name(stage: Set, target: Target) -> None:
    """As norfab's client does: details from all, then the file from one of them."""
    body = join([b'{"task": "file_details", "kwargs": {"url": ["nf://empty"]}}'])
    stage.broker.submit(stage.asker.core, SERVICE, body, b"", Options(uid="u", target=target))
    stage.hand.settle()
    [piece] = unpack(join(stage.asker.answers[0]))
    assert piece.name == WORKER
    assert piece.body is not None
    assert json.loads(split(piece.body)[0])["nf://empty"]["result"]["size_bytes"] == 0


def test_it_is_shown_as_a_worker(stage: Set) -> None:
    [row] = manage(stage.management, "show_workers")
    assert (row["name"], row["service"], row["status"]) == ("filesharing-broker", "filesharing", "alive")
    assert stage.management.show_broker()["workers"] == 1
