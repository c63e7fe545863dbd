"""What peers say never steers the terminal of whoever looks at it: control characters in every field that a command
prints, in every command that prints it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import Any

import pytest
import zmq

from polydomo.cli import broker_client, common
from polydomo.cli.processes import url_of
from polydomo.errors import WorkerError
from polydomo.server import log
from polydomo.server.settings import LogSection
from tests.cli.support import CLEAN, here, on_a_terminal, run
from tests.support.broker import BrokerProcess, wait_for

# ESC, CSI as C1, DEL, a bell, a carriage return, a change of direction.
EVIL = "x\x1b]0;owned\x07\x1b[31m\x9b2J\x7f\r\u202e"
UNSAFE = {*"\x1b\x07\x9b\x7f\r\u202e"}

JOB = {
    "id": EVIL,
    "service": EVIL,
    "state": EVIL,
    "reason": EVIL,
    "attempts": 1,
    "submitted": 1,
    "dispatched": 1,
    "finished": 1,
    "bytes_in": 1,
    "bytes_out": 1,
    "client": EVIL,
    "worker": EVIL,
    "dialect": EVIL,
    "waited": 0.0,
    "ran": 0.0,
    "age": 0.0,
}
WORKER = {
    "name": EVIL,
    "dialect": EVIL,
    "services": [EVIL],
    "state": EVIL,
    "holds": 0,
    "credit": 1,
    "done": 0,
    "seen": 0.0,
    "since": 0.0,
}
COUNTS = dict.fromkeys(("workers", "idle", "waiting", "running", "done", "failed", "retried"), 1)
MEMO = dict.fromkeys(("entries", "bytes", "hits", "joined", "misses", "saved_seconds"), 0)

# A hostile broker's answers, by task.
ANSWERS: dict[str, Any] = {
    "show_services": [{"name": EVIL, **COUNTS}],
    "show_workers": [WORKER],
    "show_clients": [
        {
            "name": EVIL,
            "dialect": EVIL,
            "unanswered": 0,
            "bytes": 0,
            "submitted": 0,
            "held": False,
            "since": 0.0,
        }
    ],
    "show_jobs": [JOB],
    "show_broker": {"name": EVIL, "version": EVIL, "uptime": 1.0, "memory": 1, "workers": 1, "services": 1}
    | {"zmq": [EVIL], "events": {"endpoints": [EVIL], EVIL: 1}},
    "show_stored_jobs": {"jobs": [JOB], "next": EVIL},
    "show_dead_letters": {"jobs": [JOB], "next": EVIL},
    "show_stored_job": JOB
    | {
        "request": [EVIL],
        "history": [{"attempt": 1, "worker": EVIL, "started": 1, "ended": 2, "outcome": EVIL}],
        "events": [{"at": 1, "worker": EVIL, "kind": EVIL, "body": EVIL}],
        "result": {EVIL: [EVIL]},
        EVIL: EVIL,
    },
    "get_logs": [
        {"ts": EVIL, "level": EVIL, "message": f"{EVIL}\nforged", "facts": {EVIL: f"{EVIL}\nforged"}}
    ],
    "get_stats": {"name": EVIL, "status": EVIL, "endpoint": EVIL, "worker_count": 0, "service_count": 0}
    | {"process": {EVIL: EVIL}, "messaging": {EVIL: EVIL}},
    "disconnect": {"disconnected": [EVIL]},
    "shutdown": {"name": EVIL},
    "show_resources": [{"worker": EVIL, "services": [EVIL], "resources": [EVIL]}],
    "list_inventory": {"file": EVIL, "workers": {EVIL: [EVIL]}, "services": {EVIL: 1}, "error": EVIL},
    "show_inventory": {EVIL: [EVIL, {"a": EVIL}]},
    "reload": {"changed": [EVIL]},
    "list_files": [{"name": EVIL, "kind": "file", "size_bytes": 1, "modified": 1.0}],
    "walk": [EVIL],
    "file_details": {"size_bytes": 1, "sha256": EVIL, "md5hash": EVIL, "modified": 1.0, "etag": EVIL},
}

COMMANDS = [
    "services ls",
    "workers ls",
    "clients ls",
    "jobs ls",
    "jobs stored",
    "jobs dead",
    "jobs show 1",
    "status",
    "doctor",
    "admin stats",
    "admin logs",
    "admin disconnect",
    "admin shutdown",
    "admin resources",
    "inventory ls",
    "inventory show",
    "inventory reload",
    "files ls",
    "files info a",
    "memo show",
]


class Nobody:
    """Stands in for a client."""

    async def __aenter__(self) -> Nobody:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


def unsafe(text: str) -> set[str]:
    """What a terminal would obey. Colours of our own are not there: nothing here is a terminal."""
    return UNSAFE & set(text)


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    async def call_task(client: object, url: str, task: str, kwargs: object, **_: object) -> Any:
        return ANSWERS.get(task, [{"name": EVIL, "on": True, **MEMO}])

    monkeypatch.setattr(broker_client, "call_task", call_task)
    monkeypatch.setattr(broker_client, "connect", lambda *_, **__: Nobody())


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_passes_control_characters_on(hostile: None, command: str) -> None:
    done = here(*command.split())
    assert not unsafe(done.stdout), done.stdout
    assert not unsafe(done.stderr), done.stderr
    assert "]0;owned" in done.output
    assert "\nforged" not in done.output
    assert done.exit_code in (0, 1)


@pytest.mark.parametrize("command", COMMANDS)
def test_json_has_the_same_values_in_safe_letters(hostile: None, command: str) -> None:
    done = here(*command.split(), "--json")
    assert not unsafe(done.stdout), done.stdout
    assert EVIL in repr_of(json.loads(done.stdout))


def repr_of(value: object) -> str:
    """All strings in a value."""
    if isinstance(value, dict):
        return "".join(map(repr_of, [*value, *value.values()]))
    return "".join(map(repr_of, value)) if isinstance(value, list) else str(value)


@pytest.mark.parametrize("debug", ["", "1"])
@pytest.mark.parametrize("words", [["jobs", "show", "1"], ["jobs", "show", "1", "--json"]])
def test_an_error_from_a_peer_is_cleaned(
    monkeypatch: pytest.MonkeyPatch, words: list[str], debug: str
) -> None:
    async def call_task(*_: object, **__: object) -> Any:
        raise WorkerError(EVIL, kind=EVIL, traceback=EVIL)

    monkeypatch.setattr(broker_client, "call_task", call_task)
    monkeypatch.setattr(broker_client, "connect", lambda *_, **__: Nobody())
    done = here(*words, env={"POLYDOMO_DEBUG": debug})
    assert done.exit_code == 1
    assert not unsafe(done.stdout + done.stderr)


def test_completion_offers_no_name_with_control_characters(hostile: None) -> None:
    assert broker_client.complete_service("x") == []


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_log_shows_control_characters(form: str) -> None:
    stream = io.StringIO()
    log.setup(LogSection(format=form), stream)  # type: ignore[arg-type]
    log.Log().warning(f"{EVIL}\nforged", peer=f"{EVIL}\nforged", many=[EVIL])
    try:
        raise ValueError(EVIL)
    except ValueError as error:
        log.Log().error("failed", exc_info=error)
    assert not unsafe(stream.getvalue())
    assert "\nforged" not in stream.getvalue()


def test_a_table_is_as_wide_as_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    common.show(common.table(["a", "b"], [["\x1b", "|"], ["12345", "|"]]))
    lines = capsys.readouterr().out.splitlines()
    assert len({line.index("|") for line in lines[1:]}) == 1


def test_a_workers_error_is_cleaned_on_its_way_to_a_terminal(tmp_path: Path) -> None:
    """A real worker, of a name and with an error and an answer that steer terminals, and a person who calls it."""
    (tmp_path / "evil.py").write_text(
        "from polydomo import Worker\n"
        "worker = Worker()\n"
        f"@worker.service\ndef fails(value):\n    raise ValueError({EVIL!r})\n"
        f"@worker.service\ndef answers(value):\n    return {EVIL!r}\n"
    )
    with BrokerProcess() as broker:
        url = url_of(broker.endpoint)
        words = ["worker", "evil:worker", "--url", url]
        worker = subprocess.Popen(
            [sys.executable, "-m", "polydomo", *words], stderr=subprocess.DEVNULL, env=CLEAN, cwd=tmp_path
        )
        try:
            wait_for(lambda: len(broker_client.query(url, "services")) == 2, 20)
            for more in ([], ["--json"]):
                for debug in ("", "1"):
                    done = run("call", "fails", "1", "-u", url, *more, env={"POLYDOMO_DEBUG": debug})
                    assert done.returncode == 1
                    assert not unsafe(done.stdout + done.stderr)
            assert run("call", "answers", "1", "-u", url).stdout == f"{EVIL}\n", "a pipe gets what was sent"
            shown = on_a_terminal("call", "answers", "1", "-u", url)
            assert "x\\x1b]0;owned\\x07" in shown
            assert not {"\x07", "\x9b", "\u202e"} & set(shown)
        finally:
            worker.kill()
            worker.wait()


def test_a_foreign_brokers_words_are_cleaned() -> None:
    """Whatever listens at the URL: here something that answers every request with control characters."""
    ports: Queue[int] = Queue()
    over = Event()
    answered = 0

    def serve() -> None:
        nonlocal answered
        with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
            router.linger = 0
            ports.put(router.bind_to_random_port("tcp://127.0.0.1"))
            while not over.is_set():
                if router.poll(20):
                    *head, _ = router.recv_multipart()
                    router.send_multipart([*head, json.dumps([{"name": EVIL, **COUNTS}]).encode()])
                    answered += 1

    thread = Thread(target=serve)
    thread.start()
    try:
        done = run("services", "ls", "-u", f"mdp://127.0.0.1:{ports.get(timeout=10)}")
    finally:
        over.set()
        thread.join()
    assert answered
    assert not unsafe(done.stdout + done.stderr)
