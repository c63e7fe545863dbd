"""`polydomo call` and `polydomo worker` over NFP."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from polydomo.cli import broker_client
from polydomo.cli.processes import url_of
from tests.cli.support import CLEAN, here, run
from tests.support.broker import BrokerProcess, wait_for

SERVICE = """
def who(body, ctx):
    if body == {"fail": ctx.resources[0]}:
        raise ValueError("not me")
    return [ctx.resources[0], body]
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a broker where two named workers offer `who`."""
    folder = tmp_path_factory.mktemp("here")
    (folder / "serving.py").write_text(SERVICE)
    workers = []
    with BrokerProcess() as broker:
        place = url_of(broker.endpoint, "nfp")
        try:
            for name in ("w1", "w2"):
                words = ["worker", "serving:who", "--url", place, "--name", name, "--resource", f"r-{name}"]
                words += ["--store", f"{name}.db"]
                workers.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "polydomo", *words],
                        stderr=subprocess.DEVNULL,
                        env=CLEAN,
                        cwd=folder,
                    )
                )
            wait_for(lambda: len(broker_client.query(place, "workers")) == 2, 30)
            yield place
            assert (folder / "w1.db").exists()
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()


def test_one_worker(url: str) -> None:
    assert run("call", "who", "1", "-u", url, "--target", "w2", "--json").stdout == '["r-w2",1]\n'
    assert run("call", "who", "1", "-u", url, "--resource", "r-w1", "--json").stdout == '["r-w1",1]\n'


def test_all_workers(url: str) -> None:
    found = run("call", "who", "1", "-u", url, "--target", "all")
    assert json.loads(found.stdout) == {"w1": ["r-w1", 1], "w2": ["r-w2", 1]}
    found = run("call", "who", "1", "-u", url, "--target", "w1,w2", "--json")
    assert json.loads(found.stdout) == {"w1": ["r-w1", 1], "w2": ["r-w2", 1]}


def test_one_of_several_fails(url: str) -> None:
    found = run("call", "who", '{"fail": "r-w1"}', "-u", url, "--target", "all")
    assert found.returncode == 1
    said = json.loads(found.stdout)
    assert said["w1"] == {"failed": True, "error": "who: ValueError: not me"}
    assert said["w2"] == ["r-w2", {"fail": "r-w1"}]


def test_options(url: str) -> None:
    flags = ["--priority", "3", "--key", "k", "--delay", "10ms", "--deadline", "20s", "--target", "w1"]
    found = run("call", "who", '{"x": 1}', "-u", url, "--json", *flags)
    assert json.loads(found.stdout) == ["r-w1", {"x": 1}]


def test_options_without_a_place_for_them(url: str) -> None:
    found = run("call", "who", "1", "-u", url, "--priority", "3")
    assert found.returncode == 2
    assert "JSON object" in found.stderr
    found = run("call", "who", "1", "-u", url.replace("nfp", "mdp"), "--target", "w1")
    assert found.returncode == 2
    assert "nfp://" in found.stderr


def test_the_brokers_and_the_workers_management(url: str) -> None:
    found = run("call", "mmi.service.broker", "show_broker", "-u", url, "--json")
    assert json.loads(found.stdout)["workers"] == 2
    found = run("call", "mmi.service.worker", "show_workers", "-u", url, "--json", "--target", "w1")
    assert json.loads(found.stdout)["w1"][0]["resources"] == ["r-w1"]


def test_a_worker_of_another_dialect_has_no_name(tmp_path: Path) -> None:
    (tmp_path / "serving2.py").write_text(SERVICE)
    words = ["worker", "serving2:who", "-u", "mdp://127.0.0.1:1", "--name", "w1"]
    found = run(*words, cwd=tmp_path)
    assert found.returncode == 2
    assert "nfp://" in found.stderr


def test_bad_times() -> None:
    found = here("call", "who", "1", "-u", "nfp://127.0.0.1:1", "--delay", "soon")
    assert found.exit_code == 2
