"""`inventory`, `files` and `admin`: a broker's own services from the command line."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from polydomo.cli import broker_client
from polydomo.cli.processes import url_of
from polydomo.sdk import SyncClient
from polydomo.services.folder import Folder
from tests.cli.support import here, run
from tests.support.broker import BrokerProcess, wait_for

DATA = os.urandom(3_500_000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("house")
    (folder / "shared/sub").mkdir(parents=True)
    (folder / "shared/data.bin").write_bytes(DATA)
    (folder / "shared/empty").write_bytes(b"")
    (folder / "shared/sub/words.txt").write_text("some words\n")
    (folder / "inventory.yaml").write_text(
        "workers:\n  greet-*:\n    - {service: greet, colours: [red]}\n  greet-1: [one.yaml]\n"
        "services:\n  greet: {resources: [r1, r2]}\n"
    )
    (folder / "one.yaml").write_text("colours: [blue]\n")
    return folder


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[BrokerProcess]:
    flags = ["--inventory", str(folder / "inventory.yaml"), "--files", str(folder / "shared")]
    with BrokerProcess(*flags) as broker:
        yield broker


@pytest.fixture
def url(broker: BrokerProcess) -> str:
    return url_of(broker.endpoint)


def as_json(*words: str, url: str) -> Any:
    done = here(*words, "--json", "--url", url)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_inventory_show(url: str) -> None:
    assert as_json("inventory", "show", "greet-1", url=url) == {
        "service": "greet",
        "colours": ["red", "blue"],
    }
    assert "- blue" in here("inventory", "show", "greet-1", "--url", url).stdout
    assert as_json("inventory", "show", url=url)["workers"]["greet-1"] == ["one.yaml"]
    done = here("inventory", "show", "nobody", "--url", url)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "the inventory has nothing for 'nobody'" in done.stderr


def test_inventory_ls_and_reload(url: str, folder: Path) -> None:
    assert as_json("inventory", "ls", url=url)["workers"] == {"greet-*": ["(here)"], "greet-1": ["one.yaml"]}
    shown = here("inventory", "--url", url).stdout
    assert "greet-1" in shown
    assert "2 resources are distributed" in shown
    (folder / "one.yaml").write_text("colours: [green]\n")
    assert "reloaded" in here("inventory", "reload", "--url", url).stdout
    assert as_json("inventory", "show", "greet-1", url=url)["colours"] == ["red", "green"]
    (folder / "one.yaml").write_text("colours: [")
    done = here("inventory", "reload", "--url", url)
    assert done.exit_code == 1
    assert "one.yaml" in done.stderr
    assert "cannot be used" in here("inventory", "ls", "--url", url).stderr
    (folder / "one.yaml").write_text("colours: [blue]\n")
    here("inventory", "reload", "--url", url)


def test_inventory_check(folder: Path, tmp_path: Path) -> None:
    main = str(folder / "inventory.yaml")
    assert "2 names and patterns in 2 files" in here("inventory", "check", main).stdout
    assert "red" in here("inventory", "check", main, "greet-7").stdout
    assert json.loads(here("inventory", "check", main, "--json").stdout)["workers"] == ["greet-*", "greet-1"]
    assert here("inventory", "check", main, "nobody").exit_code == 1
    (tmp_path / "x.yaml").write_text("workers: {a: [{b: '${NOT_SET}'}]}")
    done = here("inventory", "check", str(tmp_path / "x.yaml"))
    assert done.exit_code == 2
    assert "x.yaml:1: the environment variable NOT_SET is not set" in done.stderr


def test_files_ls(url: str) -> None:
    assert [row["name"] for row in as_json("files", "ls", url=url)] == ["data.bin", "empty", "sub"]
    assert as_json("files", "ls", "-r", url=url) == ["nf://data.bin", "nf://empty", "nf://sub/words.txt"]
    lines = here("files", "--url", url).stdout.splitlines()
    assert lines[1].split()[0] == "3.34MiB"
    assert lines[3].split()[-1] == "sub/"
    assert "words.txt" in here("files", "ls", "nf://sub", "--url", url).stdout
    done = here("files", "ls", "nowhere", "--url", url)
    assert (done.exit_code, "file not found" in done.stderr) == (1, True)


def test_files_info(url: str) -> None:
    assert as_json("files", "info", "data.bin", url=url)["sha256"] == hashlib.sha256(DATA).hexdigest()
    assert hashlib.md5(DATA).hexdigest() in here("files", "info", "nf://data.bin", "--url", url).stdout


def test_files_get(url: str, tmp_path: Path) -> None:
    done = run("files", "get", "data.bin", "--url", url, cwd=tmp_path)
    assert "hash verified" in done.stdout, done.stderr
    assert (tmp_path / "data.bin").read_bytes() == DATA
    answer = as_json("files", "get", "nf://sub/words.txt", "-o", str(tmp_path), url=url)
    assert answer["file"] == str(tmp_path / "words.txt")
    assert run("files", "get", "sub/words.txt", "-o", "-", "--url", url).stdout == "some words\n"
    here("files", "get", "empty", "-o", str(tmp_path / "empty"), "--url", url)
    assert (tmp_path / "empty").read_bytes() == b""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.bin", "empty", "words.txt"]


def test_files_get_goes_on_where_it_was(url: str, tmp_path: Path, folder: Path) -> None:
    etag = Folder(str(folder / "shared")).details("nf://data.bin").etag
    part = tmp_path / f".data.bin.{etag}.part"
    part.write_bytes(DATA[:3_000_000])
    before = broker_client.run_task(url, "get_stats")["messaging"]["received"]
    assert here("files", "get", "data.bin", "-o", str(tmp_path / "data.bin"), "--url", url).exit_code == 0
    asked = broker_client.run_task(url, "get_stats")["messaging"]["received"] - before
    assert (tmp_path / "data.bin").read_bytes() == DATA
    assert asked <= 6, "one chunk of a MiB, not four"
    part.write_bytes(b"wrong" + DATA[5:])
    done = here("files", "get", "data.bin", "-o", str(tmp_path / "data.bin"), "--url", url)
    assert done.exit_code == 1
    assert "another hash" in done.stderr
    assert not part.exists(), "so the next time works"


@pytest.mark.parametrize("name", ["nobody", "../inventory.yaml", "nf://sub"])
def test_files_get_what_is_not_there(url: str, tmp_path: Path, name: str) -> None:
    done = here("files", "get", name, "-o", str(tmp_path / "x"), "--url", url)
    assert done.exit_code == 1
    assert done.stderr.startswith("error: ")
    assert not list(tmp_path.iterdir())


def test_a_broker_without_either() -> None:
    with BrokerProcess() as broker:
        url = url_of(broker.endpoint)
        assert "--inventory" in here("inventory", "--url", url).stdout
        assert "--inventory" in here("inventory", "reload", "--url", url).stderr
        assert "--files" in here("files", "--url", url).stderr


def test_admin_looks(url: str) -> None:
    assert as_json("admin", "stats", url=url)["role"] == "broker"
    assert "memory_rss_mbyte" in here("admin", "stats", "--url", url).stdout
    assert any(row["message"] == "listening" for row in as_json("admin", "logs", "-n", "1000", url=url))
    assert "listening" in here("admin", "logs", "-n", "1000", "--url", url).stdout
    assert "no level" in here("admin", "logs", "--level", "loud", "--url", url).stderr


def test_admin_disconnect_and_resources(url: str) -> None:
    from polydomo.sdk import SyncWorker

    worker = SyncWorker(url)
    worker.add("greet", lambda name: f"hello {name}")
    with worker, SyncClient(url) as client:
        assert client.call("greet", "Ada") == "hello Ada"
        wait_for(lambda: len(as_json("admin", "resources", "-s", "greet", url=url)[0]["resources"]) == 2)
        assert "r1" in here("admin", "resources", "--url", url).stdout
        assert "1 resources of greet" in here("admin", "share-out", "greet", "x", "--url", url).stdout
        wait_for(lambda: as_json("admin", "resources", url=url)[0]["resources"] == ["x"])
        assert "1 disconnected" in here("admin", "disconnect", "--url", url).stdout
        assert client.call("greet", "Ada", timeout=10, wait=True) == "hello Ada"
    assert "no worker" in here("admin", "disconnect", "nobody", "--url", url).stderr


def test_admin_restart_and_shutdown() -> None:
    with BrokerProcess() as broker:
        url = url_of(broker.endpoint)
        answer = as_json("admin", "restart", url=url)
        assert (answer["name"], answer["restarting"]) == ("polydomo", True)
        assert "is back after" in here("admin", "restart", "--url", url).stdout
        assert "stops" in here("admin", "shutdown", "--url", url).stdout
        assert broker.process.wait(10) == 0
        done = here("admin", "shutdown", "--url", url)
        assert done.exit_code == 3
