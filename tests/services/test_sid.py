"""services/sid: `sid.service.broker`, and how changes of its files are noticed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from polydomo.errors import ConfigError
from polydomo.services.management import ManagementService
from polydomo.services.sid import CHANGED, NAME, Sid
from tests.services.support import Asker, ByHand, Heard
from tests.support.core import Bench


class Set:
    def __init__(self, path: Path | None) -> None:
        self.hand = ByHand()
        self.bench = Bench()
        management = ManagementService(self.bench.broker, "house")
        self.heard = Heard()
        self.bench.broker.publisher = self.heard
        self.said: list[tuple[str, str]] = []
        self.sid = Sid(
            management.authorizer,
            self.hand,
            lambda what, why: self.said.append((what, why)),
            str(path or ""),
            watch=2.0,
        )
        self.sid.start()
        self.asker = Asker(self.bench.broker)
        self._touched = 1

    def write(self, path: Path, text: str) -> None:
        path.write_text(text)
        self._touched += 1
        os.utime(path, ns=(self._touched, self._touched))

    def look(self, now: float) -> None:
        self.bench.at(now)
        self.hand.settle()


@pytest.fixture
def main(tmp_path: Path) -> Path:
    path = tmp_path / "main.yaml"
    path.write_text("workers: {w-*: [common.yaml], w-1: [{x: 1}]}\nservices: {w: {resources: [a, b]}}")
    (tmp_path / "common.yaml").write_text("service: w")
    return path


@pytest.fixture
def stage(main: Path) -> Set:
    return Set(main)


def test_get_inventory(stage: Set) -> None:
    ask = stage.asker.ask
    assert ask(stage.hand, NAME, "get_inventory", name="w-1") == {"service": "w", "x": 1}
    assert ask(stage.hand, NAME, "get_inventory", name="w-2") == {"service": "w"}
    assert ask(stage.hand, NAME, "get_inventory", name="nobody") is None
    assert ask(stage.hand, NAME, "show_inventory", name="w-2") == {"service": "w"}
    assert ask(stage.hand, NAME, "show_inventory")["workers"] == {"w-*": ["common.yaml"], "w-1": [{"x": 1}]}
    for name in (7, None, "x" * 5000):
        assert "a worker's name" in stage.asker.refused(stage.hand, NAME, "get_inventory", name=name)
    assert "wrong arguments" in stage.asker.refused(stage.hand, NAME, "get_inventory")


def test_list_inventory(stage: Set, main: Path) -> None:
    shown = stage.asker.ask(stage.hand, NAME, "list_inventory")
    assert shown == {
        "file": str(main),
        "files": [str(main), str(main.parent / "common.yaml")],
        "workers": {"w-*": ["common.yaml"], "w-1": ["(here)"]},
        "services": {"w": 2},
        "error": "",
    }


def test_without_a_file_it_knows_nobody(tmp_path: Path) -> None:
    """norfab's workers ask all the same when they start, and go on with null."""
    stage = Set(None)
    for _ in range(3):
        assert stage.asker.ask(stage.hand, NAME, "get_inventory", name="w-1") is None
    assert stage.asker.ask(stage.hand, NAME, "show_inventory") == {}
    assert stage.asker.ask(stage.hand, NAME, "list_inventory")["file"] == ""
    assert "--inventory" in stage.asker.refused(stage.hand, NAME, "reload")
    stage.sid.refresh()
    stage.look(100.0)


def test_a_broken_file_is_an_error_at_the_start(main: Path) -> None:
    main.write_text("workers: [")
    with pytest.raises(ConfigError, match="not YAML"):
        Set(main)


def test_a_change_is_noticed_and_told(stage: Set, main: Path) -> None:
    for name in (b"w-1", b"w-2", b"other"):
        stage.bench.worker(b"w", name=name)
    subscribers = list(stage.bench.broker.workers)
    for worker in subscribers:
        worker.reading_paused = True  # no worker expires here
    stage.look(2.1)
    assert not stage.heard.events
    stage.write(main, "workers: {w-*: [common.yaml], w-1: [{x: 2}]}")
    stage.look(4.2)
    assert stage.asker.ask(stage.hand, NAME, "get_inventory", name="w-1") == {"service": "w", "x": 2}
    assert stage.heard.events == [
        (NAME, b"w-1", CHANGED, {"worker": "w-1"}),
        (NAME, b"*", CHANGED, {"workers": ["w-1"]}),
    ]
    stage.write(main.parent / "common.yaml", "service: v")
    stage.look(6.3)
    assert [event[1] for event in stage.heard.events[2:]] == [b"w-1", b"w-2", b"*"]


def test_a_broken_change_keeps_the_old_one(stage: Set, main: Path) -> None:
    stage.write(main, "workers: {w-1: [new.yaml]}")
    stage.look(2.1)
    assert stage.asker.ask(stage.hand, NAME, "get_inventory", name="w-1") == {"service": "w", "x": 1}
    assert "new.yaml: cannot be read" in stage.said[0][1]
    assert "new.yaml" in stage.asker.ask(stage.hand, NAME, "list_inventory")["error"]
    stage.look(10.0)
    assert len(stage.said) == 1, "it is said once, not at every look"
    (main.parent / "new.yaml").write_text("x: 3")
    stage.look(12.1)
    assert stage.asker.ask(stage.hand, NAME, "get_inventory", name="w-1") == {"x": 3}
    assert stage.asker.ask(stage.hand, NAME, "list_inventory")["error"] == ""
    assert stage.said[1:] == [("inventory read", "")]


def test_reload_now(stage: Set, main: Path) -> None:
    stage.bench.worker(b"w", name=b"w-1")
    stage.write(main, "workers: {w-1: [{x: 5}]}")
    assert stage.asker.ask(stage.hand, NAME, "reload") == {"changed": ["w-1"]}
    assert stage.asker.ask(stage.hand, NAME, "reload") == {"changed": []}
    stage.write(main, "workers: [")
    assert "not YAML" in stage.asker.refused(stage.hand, NAME, "reload")
    assert stage.asker.ask(stage.hand, NAME, "get_inventory", name="w-1") == {"x": 5}


def test_two_reloads_at_once_are_both_answered(stage: Set) -> None:
    stage.asker.send(NAME, "reload")
    stage.asker.send(NAME, "reload")
    stage.hand.settle()
    assert len(stage.asker.answers) == 2


def test_resources_are_shared_out(stage: Set, main: Path) -> None:
    broker = stage.bench.broker
    worker = stage.bench.worker(b"w", name=b"w-1").core
    worker.reading_paused = True
    stage.bench.at(1.0)
    assert sorted(broker.control.resources_of(worker)) == [b"a", b"b"]
    stage.write(main, "services: {w: {resources: [b, c]}}")
    stage.look(2.1)
    stage.bench.at(3.0)
    assert sorted(broker.control.resources_of(worker)) == [b"b", b"c"]
    stage.write(main, "workers: {}")
    stage.look(4.2)
    stage.bench.at(5.0)
    assert broker.control.resources_of(worker) == []
