"""`polydomo config check` and `polydomo config show`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.support import here


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_check_of_nothing_is_fine() -> None:
    done = here("config", "check")
    assert done.exit_code == 0
    assert "the defaults apply" in done.stdout


def test_check_of_a_good_file() -> None:
    Path("polydomo.toml").write_text('[heartbeat]\ninterval = "1s"')
    done = here("config", "check")
    assert done.exit_code == 0
    assert "polydomo.toml: 1 setting, no mistakes" in done.stdout


def test_check_lists_all_mistakes() -> None:
    Path("bad.toml").write_text("[heartbeat]\nintervl = 1\nliveness = 0\n")
    done = here("config", "check", "--config", "bad.toml", env={"POLYDOMO_LOG_LEVEL": "loud"})
    assert done.exit_code == 2
    assert done.stdout == ""
    assert [line.strip() for line in done.stderr.splitlines()] == [
        "error: 3 mistakes in the configuration",
        "bad.toml:2: heartbeat.intervl = 1",
        "no such setting",
        "did you mean interval?",
        "bad.toml:3: heartbeat.liveness = 0",
        "must be a whole number, 1 or more",
        'POLYDOMO_LOG_LEVEL: log.level = "loud"',
        "must be one of debug, info, warning, error",
    ]


def test_check_as_json() -> None:
    Path("bad.toml").write_text("[heartbeat]\nliveness = 0\n")
    done = here("config", "check", "-c", "bad.toml", "--json")
    assert done.exit_code == 2
    assert json.loads(done.stdout) == {
        "ok": False,
        "file": "bad.toml",
        "problems": [
            {
                "where": "bad.toml:2",
                "key": "heartbeat.liveness",
                "value": "0",
                "message": "must be a whole number, 1 or more",
                "hint": "",
            }
        ],
    }


def test_show_tells_where_each_value_is_from() -> None:
    Path("polydomo.toml").write_text('[heartbeat]\ninterval = "1s"\n[services."a*"]\nretries = 0')
    done = here("config", "show", "--json", env={"POLYDOMO_BROKER_NAME": "hill"})
    rows = {row["key"]: (row["value"], row["source"]) for row in json.loads(done.stdout)}
    assert rows["heartbeat.interval"] == ("1s", "polydomo.toml:2")
    assert rows["broker.name"] == ("hill", "POLYDOMO_BROKER_NAME")
    assert rows["limits.memory"] == ("2GiB", "default")
    assert rows['services."a*".retries'] == ("0", "polydomo.toml:4")


def test_show_writes_values_as_people_do() -> None:
    Path("polydomo.toml").write_text(
        '[defaults]\nwait = "90s"\ntimeout = "3600s"\n[limits]\nmemory = 1_000_000_000\nclient_bytes = 1_048_577'
    )
    rows = {row["key"]: row["value"] for row in json.loads(here("config", "show", "--json").stdout)}
    assert (rows["defaults.wait"], rows["defaults.timeout"]) == ("1m30s", "1h")
    assert (rows["limits.memory"], rows["limits.client_bytes"]) == ("1GB", "1048577B")
    assert rows["limits.message_bytes"] == "64MiB+64KiB"


def test_show_defaults_ignores_what_is_set() -> None:
    done = here("config", "show", "--defaults", "--docs", env={"POLYDOMO_BROKER_NAME": "hill"})
    assert "hill" not in done.stdout
    assert "name of the broker" in done.stdout


def test_show_of_a_broken_configuration_tells_what_is_wrong() -> None:
    done = here("config", "show", env={"POLYDOMO_HEARTBEAT_LIVENESS": "0"})
    assert done.exit_code == 2
    assert "1 mistake in the configuration" in done.stderr
