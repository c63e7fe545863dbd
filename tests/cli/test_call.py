"""`polydomo call`: request and reply bodies, and an exit code for every kind of failure."""

from __future__ import annotations

import json
from pathlib import Path

import cbor2
import pytest

from polydomo.cli import common
from polydomo.cli.bodies import ReplyBody, encode, encode_own
from tests.cli.support import here, on_a_terminal, run

NOWHERE = "mdp://127.0.0.1:1"


# Bodies


@pytest.mark.parametrize(
    ("typed", "codec", "sent"),
    [
        (b"hello", "json", b'"hello"'),
        (b"hello\n", "json", b'"hello"'),
        (b'{"a": 1}', "json", b'{"a":1}'),
        (b"5", "json", b"5"),
        (b"", "json", b""),
        (b"\xff\x00", "json", b"\xff\x00"),
        (b"hello", "raw", b"hello"),
        (b'{"a": 1}', "raw", b'{"a": 1}'),
        (b"[1]", "msgpack", b"\x91\x01"),
        (b"[1]", "cbor", cbor2.dumps([1])),
    ],
)
def test_what_is_typed_and_what_is_sent(typed: bytes, codec: str, sent: bytes) -> None:
    assert encode(typed, codec) == sent


@pytest.mark.parametrize(
    ("frames", "codec", "value"),
    [
        ([b'"hello"'], "json", "hello"),
        ([b'{"a":1}'], "json", {"a": 1}),
        ([b"plain"], "json", "plain"),
        ([b"\xff\x00"], "json", {"hex": "ff00"}),
        ([b"\x07"], "raw", {"hex": "07"}),
        ([b"a\tb\n"], "raw", "a\tb\n"),
        ([b""], "json", ""),
        ([b"1", b"2"], "json", [1, 2]),
        ([b"\x91\x01"], "msgpack", [1]),
    ],
)
def test_what_comes_and_what_is_shown(frames: list[bytes], codec: str, value: object) -> None:
    assert ReplyBody(frames, codec).value() == value


def test_an_answer_does_not_steer_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe gets the string as it is, for a program; a person is shown what is in it."""
    ReplyBody([b'"a\\u001b[2Jb\\u009b\\u202e"'], "json").print()
    assert capsys.readouterr().out == "a\x1b[2Jb\x9b\u202e\n"
    ReplyBody([b'{"a": "\\u001b\\u009b"}'], "json").print()
    assert json.loads(capsys.readouterr().out) == {"a": "\x1b\x9b"}
    monkeypatch.setattr(common.out, "_force_terminal", True)
    monkeypatch.setattr(common.out, "no_color", True)
    ReplyBody([b'"a\\u001b[2Jb\\u009b\\u202e"'], "json").print()
    assert capsys.readouterr().out == "a\\x1b[2Jb\\x9b\\u202e\n"


# Calls


def test_text_and_json(url: str) -> None:
    assert here("call", "echo", "hello", "--url", url).stdout == "hello\n"
    assert json.loads(here("call", "echo", '{"a": [1, null]}', "--url", url).stdout) == {"a": [1, None]}
    assert here("call", "upper", "hello", "--url", url, "--json").stdout == '"HELLO"\n'


def test_the_environment_names_the_broker(url: str) -> None:
    assert here("call", "echo", "hi", env={"POLYDOMO_URL": url}).stdout == "hi\n"


def test_a_file_and_stdin(url: str, tmp_path: Path) -> None:
    path = tmp_path / "body"
    path.write_bytes(bytes(range(256)))
    done = here("call", "echo", f"@{path}", "--raw", "--url", url)
    assert done.stdout_bytes == bytes(range(256))
    assert here("call", "upper", "-", "--url", url, stdin="from stdin\n").stdout == "FROM STDIN\n"
    missing = here("call", "echo", "@gone", "--url", url)
    assert missing.exit_code == 2
    assert "cannot read gone" in missing.stderr


def test_several_frames(url: str) -> None:
    assert here("call", "echo", "-f", "a", "-f", "b", "--url", url).stdout == "[0] a\n[1] b\n"
    assert here("call", "echo", "-f", "a", "-f", "b", "--url", url, "--json").stdout == '["a","b"]\n'
    assert here("call", "echo", "a", "-f", "b", "--url", url).exit_code == 2


def test_partial_answers_with_stream(url: str) -> None:
    assert here("call", "count", "3", "--stream", "--url", url).stdout == "1\n2\n3\n"
    assert here("call", "count", "3", "--url", url).stdout == "3\n"


def test_dcp(url: str) -> None:
    assert here("call", "upper", "hello", "--url", url.replace("mdp", "dcp")).stdout == "HELLO\n"


@pytest.mark.parametrize(
    ("typed", "codec", "sent"),
    [
        (b"echo", "json", b"echo"),
        (b"echo\n", "json", b"echo"),
        (b"1e3", "json", b"1e3"),
        (b"x\n", "raw", b"x\n"),
    ],
)
def test_the_broker_itself_is_sent_what_is_typed(typed: bytes, codec: str, sent: bytes) -> None:
    assert encode_own(typed, codec) == sent


def test_the_brokers_own_services(url: str) -> None:
    for typed in ("echo", '"echo"'):
        assert here("call", "mmi.service", typed, "--url", url).stdout == "200\n"
    assert here("call", "mmi.service", "nobody", "--url", url).stdout == "404\n"
    assert here("call", "mmi.service", "echo", "--raw", "--url", url).stdout == "200"
    for typed in ("show_services", '{"task": "show_services"}'):
        shown = json.loads(here("call", "mmi.service.broker", typed, "--url", url, "--json").stdout)
        assert [row["name"] for row in shown] == ["count", "echo", "upper"]
    assert here("call", "mmi.nothing", "x", "--raw", "--url", url).stdout == "501"


def test_raw_bytes_end_the_line_on_a_terminal_only(url: str) -> None:
    words = ("call", "echo", "-f", "hel", "-f", "lo", "--raw", "--url", url)
    assert run(*words).stdout == "hello"
    assert on_a_terminal(*words) == "hello\n"
    assert on_a_terminal("call", "echo", "-", "--raw", "--url", url, stdin=b"line\n") == "line\n"


# What goes wrong


def test_a_service_nobody_offers_is_told_at_once_with_those_there_are(url: str) -> None:
    done = here("call", "cuont", "3", "--url", url)
    assert done.exit_code == 4
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "error: no worker offers 'cuont'",
        "hint: did you mean count? offered: count, echo, upper; or wait for a worker with --wait",
    ]


def test_wait_queues_for_a_service_nobody_offers_yet(url: str) -> None:
    done = here("call", "nobody", "--wait", "--timeout", "200ms", "--url", url)
    assert done.exit_code == 5
    assert "no answer within 0.2 s" in done.stderr
    assert "--timeout" in done.stderr


def test_an_error_of_the_worker(url: str) -> None:
    done = here("call", "count", "0", "--url", url)
    assert done.exit_code == 1
    assert done.stderr == "error: count: ValueError: count to a number from 1 to 1000, not 0\n"


def test_nobody_listens() -> None:
    done = here("call", "echo", "x", "--url", NOWHERE)
    assert done.exit_code == 3
    assert "polydomo dev" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["echo", "x", "--url", "nonsense"],
        ["echo", "x", "--codec", "xml"],
        ["echo", "x", "--timeout", "soon"],
        ["echo", "two", "words"],
        [],
    ],
)
def test_usage_errors(words: list[str]) -> None:
    assert here("call", *words).exit_code == 2


def test_errors_as_json(url: str) -> None:
    done = here("call", "nobody", "--json", "--url", url)
    assert done.exit_code == 4
    assert json.loads(done.stdout)["error"]["code"] == "unknown-service"
    assert done.stderr == ""


def test_debug_shows_tracebacks_and_nothing_else_does(url: str) -> None:
    quiet = run("call", "count", "0", "--url", url)
    assert "Traceback" not in quiet.stderr
    loud = run("call", "count", "0", "--url", url, env={"POLYDOMO_DEBUG": "1"})
    assert "in count" in loud.stderr, "the worker's own traceback"
    assert "polydomo.errors.WorkerError" in loud.stderr
