"""`polydomo broker`: its flags, its first lines, and the reload on SIGHUP."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from polydomo.cli.broker import OPTIONS
from polydomo.server import config
from polydomo.server.config import Flag
from tests.cli.support import here, run
from tests.support.broker import BrokerProcess, wait_for


def lines(broker: BrokerProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in broker.log().splitlines()]


def test_the_first_lines_tell_version_loop_build_and_every_listener() -> None:
    with BrokerProcess("--zmq", "tcp://127.0.0.1:*", "--name", "hill") as broker:
        wait_for(lambda: len(lines(broker)) == 5)
        first, keeping, audit, *listeners = lines(broker)
        assert audit["audit"] == f"{broker.data}/audit"
        assert first["event"].startswith("polydomo ")
        assert (first["name"], first["pid"]) == ("hill", broker.pid)
        assert first["loop"] in ("uvloop", "asyncio")
        assert first["build"] in ("compiled", "plain")
        assert keeping["store"] == f"sqlite:///{broker.data}/jobs.db"
        assert [line["zmq"] for line in listeners] == broker.endpoints
        assert len(set(broker.endpoints)) == 2
        assert broker.stop() == 0


def test_every_flag_reaches_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Flag] = []
    monkeypatch.setattr("polydomo.cli.broker_runner.run", lambda flags, file: given.extend([*flags, file]))
    values = {
        "--zmq": "tcp://h:1",
        "--nng": "tcp://h:3",
        "--http": "h:4",
        "--events": "tcp://h:2",
        "--data": "d",
        "--ledger": "l",
        "--inventory": "i.yaml",
        "--files": "f",
        "--join": "wmp://h:5",
        "--name": "n",
        "--drain": "1s",
        "--heartbeat": "250ms",
        "--liveness": "3",
        "--log-level": "debug",
        "--log-format": "json",
    }
    assert values.keys() | {"--insecure"} == OPTIONS.keys()
    words = ["--insecure", *(word for pair in values.items() for word in pair)]
    assert here("broker", *words, "--set", "limits.hops=5", "--config", "f").exit_code == 0
    assert given.pop() == "f"
    settings = config.gather(flags=given, environ={}).checked()
    for flag, (key, *_) in OPTIONS.items():
        row = next(row for row in config.rows(config.gather(flags=given, environ={})) if row.key == key)
        assert (row.value, row.source) == (values.get(flag, "true"), flag)
    assert settings.limits.hops == 5


@pytest.mark.parametrize("command", [["broker", "--data", ""], ["device", "wmp://127.0.0.1:1"]])
def test_a_listener_that_anybody_could_use_is_refused(command: list[str]) -> None:
    done = run(*command, "--zmq", "tcp://*:*")
    assert done.returncode == 2
    assert "error: anybody who reaches this machine could use zmq tcp://*:*" in done.stderr
    assert "--insecure" in done.stderr


def test_an_insecure_broker_says_so_to_its_operators() -> None:
    with BrokerProcess("--insecure", zmq="tcp://*:*") as broker:
        url = broker.endpoint.replace("tcp://*", "mdp://127.0.0.1")
        assert any("anybody who reaches this machine can use" in line["event"] for line in lines(broker))
        assert "anybody may use zmq tcp://*:*" in here("status", "--url", url).stdout
        told = here("doctor", "--url", url)
        assert "! security" in told.stdout
        assert "zmq tcp://*:*" in told.stdout


def test_mistakes_in_flags_are_told_all_at_once() -> None:
    done = here(
        "broker", "--zmq", "nowhere", "--heartbeat", "0", "--set", "limits.hop=3", "--log-level", "loud"
    )
    assert done.exit_code == 2
    for text in (
        "4 mistakes",
        "--zmq",
        "'nowhere' is not an endpoint",
        "--heartbeat",
        "did you mean hops?",
        "--log",
    ):
        assert text in done.stderr
    assert "Traceback" not in done.output


def test_set_wants_key_and_value() -> None:
    done = here("broker", "--set", "limits.hops")
    assert done.exit_code == 2
    assert "KEY=VALUE" in done.stderr


def test_a_place_that_is_taken_is_one_line_and_a_hint(broker: BrokerProcess) -> None:
    done = run("broker", "--zmq", broker.endpoint)
    assert done.returncode == 2
    assert f"error: cannot listen on {broker.endpoint}" in done.stderr
    assert "is another broker running there?" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_data_folder_that_is_in_use_is_refused(broker: BrokerProcess) -> None:
    done = run("broker", "--zmq", "tcp://127.0.0.1:*", "--data", str(broker.data))
    assert done.returncode == 2
    assert "another broker uses" in done.stderr


def reload(broker: BrokerProcess, toml: str) -> None:
    Path(broker.folder.name, "polydomo.toml").write_text(toml)
    broker.signal(signal.SIGHUP)


def test_sighup_reads_the_file_again() -> None:
    with BrokerProcess(toml='[heartbeat]\ninterval = "1s"') as broker:
        reload(broker, '[heartbeat]\ninterval = "2s"\n[services.echo]\nretries = 0\n[broker]\nname = "new"')
        wait_for(lambda: "settings reloaded" in broker.log())
        told = {line["event"]: line for line in lines(broker)}
        assert told["configuration read again"]["changed"] == ["heartbeat.interval", "services.echo"]
        assert told["these change only with a restart"]["keys"] == ["broker.name"]
        assert broker.stop() == 0


def test_a_broken_file_keeps_the_old_settings_and_the_log_says_why() -> None:
    with BrokerProcess(toml='[log]\nlevel = "info"') as broker:
        reload(broker, "[heartbeat]\nintervl = 2\nliveness = 0")
        wait_for(lambda: "the old settings stay" in broker.log())
        problems = [line["problem"] for line in lines(broker) if "problem" in line]
        assert len(problems) == 2
        assert (
            "polydomo.toml:2: heartbeat.intervl = 2: no such setting (did you mean interval?)" in problems[0]
        )
        assert "settings reloaded" not in broker.log()
        reload(broker, '[log]\nlevel = "debug"')
        wait_for(lambda: "settings reloaded" in broker.log())
        assert broker.stop() == 0


def test_a_reload_changes_the_log_level() -> None:
    with BrokerProcess(toml='[log]\nlevel = "error"') as broker:
        assert broker.log() == ""
        reload(broker, '[log]\nlevel = "info"')
        wait_for(lambda: "settings reloaded" in broker.log())
