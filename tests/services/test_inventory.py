"""services/inventory: norfab's layout, merged deeply, and nothing leaks from one worker to another."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from norfab.core.inventory import NorFabInventory, merge_recursively

from polydomo.errors import ConfigError
from polydomo.services import inventory

MAIN = """
broker:
  endpoint: "tcp://127.0.0.1:5555"
  zmq_auth: False
workers:
  nornir-*:
    - nornir/common.yaml
  nornir-worker-[12]:
    - hosts: {r1: {user: ann}}
      tags: [b]
  nornir-worker-1:
    - nornir/one.yaml
    - nornir/common.yaml
topology:
  workers: [nornir-worker-1]
services:
  nornir:
    resources: [r1, r2, 3]
"""
COMMON = "service: nornir\nhosts: {r1: {user: bob, port: 22}}\ntags: [a, b]\nsecret: '{{ env.SECRET }}'\n"
ONE = "hosts: {r1: {port: 23}}\ntags: [c, a]\nservice: other\n"
ENVIRON = {"SECRET": "x"}


@pytest.fixture
def main(tmp_path: Path) -> Path:
    (tmp_path / "nornir").mkdir()
    (tmp_path / "nornir/common.yaml").write_text(COMMON)
    (tmp_path / "nornir/one.yaml").write_text(ONE)
    (tmp_path / "inventory.yaml").write_text(MAIN)
    return tmp_path / "inventory.yaml"


def test_names_and_patterns_are_merged_in_the_order_of_the_file(main: Path) -> None:
    found = inventory.load(main, ENVIRON)
    assert found.get("nornir-worker-1") == {
        "service": "other",
        "hosts": {"r1": {"user": "ann", "port": 23}},
        "tags": ["a", "b", "c"],
        "secret": "x",
    }
    assert found.get("nornir-worker-2") == {
        "service": "nornir",
        "hosts": {"r1": {"user": "ann", "port": 22}},
        "tags": ["a", "b"],
        "secret": "x",
    }
    assert found.get("nornir-9") == {
        "service": "nornir",
        "hosts": {"r1": {"user": "bob", "port": 22}},
        "tags": ["a", "b"],
        "secret": "x",
    }
    assert found.get("netbox-worker-1") is None


def test_norfab_reads_the_same_files_to_the_same_end(main: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Return norfab's answer to the first worker; later ones may contain what was merged for the first (a leak)."""
    monkeypatch.setenv("SECRET", "x")
    for name in ("nornir-worker-1", "nornir-worker-2", "nornir-9"):
        theirs = NorFabInventory(path=str(main))
        assert inventory.load(main).get(name) == theirs[name]


def test_no_worker_sees_what_was_done_to_anothers(main: Path) -> None:
    found = inventory.load(main, ENVIRON)
    before = copy.deepcopy(found.get("nornir-worker-2"))
    own = found.get("nornir-worker-1")
    assert own is not None
    own["hosts"]["r1"]["user"] = "eve"
    own["tags"].append("z")
    shown = found.as_written()
    shown["workers"]["nornir-worker-[12]"][0]["hosts"]["r1"]["user"] = "eve"
    assert found.get("nornir-worker-2") == before
    assert found.get("nornir-worker-1") != own


def test_resources_and_other_sections(main: Path) -> None:
    found = inventory.load(main, ENVIRON)
    assert found.resources == {"nornir": ["r1", "r2", "3"]}
    shown = found.as_written()
    assert shown["broker"] == {"endpoint": "tcp://127.0.0.1:5555", "zmq_auth": False}
    assert shown["topology"] == {"workers": ["nornir-worker-1"]}
    assert shown["hooks"] == shown["plugins"] == shown["logging"] == shown["client"] == {}


def test_changed_when_any_file_is(main: Path) -> None:
    found = inventory.load(main, ENVIRON)
    assert not inventory.differ(found.stamps)
    one = main.parent / "nornir/one.yaml"
    os.utime(one, ns=(1, 1))
    assert inventory.differ(found.stamps)
    found = inventory.load(main, ENVIRON)
    one.unlink()
    assert inventory.differ(found.stamps)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "is not a mapping"),
        ("workers: [a]", "workers: is not a mapping"),
        ("workers: {a: [1]}", "neither a file's name nor a mapping"),
        ("workers: {a: [gone.yaml]}", "gone.yaml: cannot be read"),
        ("workers: {a: [list.yaml]}", "list.yaml: is not a mapping"),
        ("services: [a]", "services: is not a mapping"),
        ("services: {a: [r1]}", "resources is not a list"),
        ("services: {a: {resources: r1}}", "resources is not a list"),
        ("services: {a: {resources: [[r1]]}}", "resources is not a list"),
        ("workers: {a: ['${NO}.yaml']}", "NO is not set"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "main.yaml").write_text(text)
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(ConfigError) as error:
        inventory.load(tmp_path / "main.yaml", {})
    assert words in str(error.value)
    assert (
        "main.yaml" in str(error.value) or "list.yaml" in str(error.value) or "gone.yaml" in str(error.value)
    )


@pytest.mark.parametrize(
    "text", ["", "workers:", "workers: {}", "services:", "workers: {a: }", "# only words"]
)
def test_an_empty_one_is_fine(tmp_path: Path, text: str) -> None:
    (tmp_path / "main.yaml").write_text(text)
    found = inventory.load(tmp_path / "main.yaml", {})
    assert found.get("a") is None


def test_one_thing_alone_and_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "main.yaml").write_text("workers: {a: {x: 1}, b: b.yaml, c: [empty.yaml]}")
    (tmp_path / "b.yaml").write_text("y: 2")
    (tmp_path / "empty.yaml").write_text("")
    found = inventory.load(tmp_path / "main.yaml", {})
    assert (found.get("a"), found.get("b"), found.get("c")) == ({"x": 1}, {"y": 2}, None)


keys = st.sampled_from(["a", "b", "c"])
scalars = st.none() | st.integers(0, 3) | st.sampled_from(["x", "y"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
mappings = st.dictionaries(keys, values, max_size=3)


@settings(deadline=None)
@given(st.lists(mappings, min_size=1, max_size=4))
def test_merging_is_norfabs_and_leaves_its_parts_alone(parts: list[dict[str, Any]]) -> None:
    kept = copy.deepcopy(parts)
    theirs: dict[str, Any] = {}
    for part in copy.deepcopy(parts):
        merge_recursively(theirs, part)
    ours: dict[str, Any] = {}
    for part in parts:
        inventory.merge(ours, part)
    assert ours == theirs
    assert parts == kept


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["w*", "w1", "w?", "*", "v"]), st.lists(mappings, max_size=3)), st.data()
)
def test_nothing_leaks_whatever_is_asked_in_whatever_order(
    tmp_path_factory: pytest.TempPathFactory, workers: dict[str, Any], data: st.DataObject
) -> None:
    """Each worker's inventory is that of a broker that was never asked for another's, even if all answers are
    written over."""
    path = tmp_path_factory.getbasetemp() / "leaks.yaml"
    path.write_text(yaml.safe_dump({"workers": workers}))
    fresh = {name: inventory.load(path, {}).get(name) for name in ("w1", "w2", "v", "x")}
    shared = inventory.load(path, {})
    for name in data.draw(st.lists(st.sampled_from(sorted(fresh)), max_size=8)):
        answer = shared.get(name)
        assert answer == fresh[name]
        _spoil(answer)


def _spoil(value: Any) -> None:
    if isinstance(value, dict):
        for inner in value.values():
            _spoil(inner)
        value.clear()
        value["spoiled"] = True
    elif isinstance(value, list):
        for inner in value:
            _spoil(inner)
        value.append("spoiled")


def test_long_lists_are_merged_quickly_enough() -> None:
    """20,000 names each; compared one by one this would take minutes."""
    data: dict[str, Any] = {"names": [f"r{n}" for n in range(20_000)]}
    inventory.merge(data, {"names": [f"r{n}" for n in range(10_000, 30_000)]})
    assert data["names"] == [f"r{n}" for n in range(30_000)]
