"""`polydomo doctor`: its checks and their results."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pytest

from polydomo import __version__
from polydomo.cli import doctor, install_info
from polydomo.server.settings import Settings
from tests.cli.support import here
from tests.support import tls


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_all_is_well(url: str) -> None:
    done = here("doctor", "--json", "--url", url)
    assert done.exit_code == 0, done.stdout
    found = json.loads(done.stdout)
    assert found["ok"] is True
    assert found["version"] == __version__
    assert found["compiled"] is bool(found["compiled_modules"])
    assert "polydomo.core.broker" in found["compiled_modules"] + found["plain_modules"]
    assert found["broker_reachable"] is True
    assert found["config_valid"] is True
    assert found["libraries"]["msgspec"]


def test_in_words(url: str) -> None:
    done = here("doctor", "--url", url)
    assert done.exit_code == 0
    assert [line.split()[1] for line in done.stdout.splitlines() if line[0] in "✓!"] == [
        "python",
        "event",
        "build",
        "open",
        "configuration",
        "broker",
    ]


def test_a_broker_that_was_named_must_answer() -> None:
    done = here("doctor", "--url", "mdp://127.0.0.1:1")
    assert done.exit_code == 1
    assert "✗ broker" in done.stdout
    assert here("doctor", env={"POLYDOMO_URL": "mdp://127.0.0.1:1"}).exit_code == 1


def test_no_broker_at_the_default_place_is_only_worth_a_remark(monkeypatch: pytest.MonkeyPatch) -> None:
    (check,) = doctor.check_broker("mdp://127.0.0.1:1", given=False)
    assert check.status == doctor.WARNING


def test_a_broken_configuration(url: str) -> None:
    Path("polydomo.toml").write_text("[heartbeat]\nliveness = 0\nintervl = 2")
    done = here("doctor", "--url", url, "--json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert (found["ok"], found["config_valid"]) == (False, False)
    text = here("doctor", "--url", url).stdout
    assert "polydomo.toml:2: heartbeat.liveness = 0" in text
    assert "(and 1 more)" in text


def test_too_few_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    check = doctor.check_open_files(20_000)
    assert check.status == doctor.WARNING
    assert "limits.connections" in check.found


@pytest.mark.parametrize(
    ("origins", "status", "said"),
    [
        (["a.py", "b.py"], doctor.OK, "plain Python"),
        (["a.so", "b.so"], doctor.OK, "all 2 hot modules"),
        (["a.so", "b.py"], doctor.WARNING, "only 1 of 2"),
    ],
)
def test_compiled_plain_or_half(
    origins: list[str], status: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install_info, "hot_modules", lambda: dict(zip("ab", origins, strict=True)))
    check = doctor.check_build()
    assert check.status == status
    assert said in check.found


def test_a_compiled_module_that_is_older_than_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, library = tmp_path / "a.py", tmp_path / "a.cpython-311.so"
    for path, age in ((source, 0), (library, 1000)):
        path.touch()
        os.utime(path, (1e9 - age, 1e9 - age))
    monkeypatch.setattr(install_info, "hot_modules", lambda: {"a": str(library)})
    check = doctor.check_build()
    assert check.status == doctor.WARNING
    assert "older than their source: a" in check.found


def test_it_claims_no_number_that_nobody_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install_info, "hot_modules", lambda: {"a": "a.py"})
    assert (
        doctor.check_build().found
        == "plain Python (a compiled wheel is faster: docs/reference/benchmarks.md)"
    )


def test_without_uvloop_the_loop_is_asyncios(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install_info, "loop_name", lambda: "asyncio")
    assert doctor.check_loop().status == doctor.WARNING


def test_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install_info, "library_version", lambda name: "" if name == "cbor2" else "1")
    assert [check.found for check in doctor.check_libraries()] == ["cbor2 is missing"]


def test_listeners_that_would_be_open_and_certificates_that_cannot_be_used(tmp_path: Path) -> None:
    settings = Settings()
    assert doctor.check_listeners(settings) == []
    settings.broker.nng = ["tls+tcp://*:1"]
    settings.tls.certificate = str(tmp_path / "missing.pem")
    certificate, listeners = doctor.check_listeners(settings)
    assert certificate.status == listeners.status == doctor.WRONG
    assert "missing.pem" in certificate.found
    assert "anybody could use nng tls+tcp://*:1" in listeners.found
    files = tls.Authority(tmp_path).issue("127.0.0.1")
    settings.tls.certificate, settings.tls.key = files
    settings.broker.insecure = True
    certificate, listeners = doctor.check_listeners(settings)
    assert (certificate.status, listeners.status) == (doctor.OK, doctor.WARNING)
