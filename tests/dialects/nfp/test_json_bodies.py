"""NFP's JSON bodies."""

from __future__ import annotations

import json

import pytest

from polydomo.core import failure as reasons
from polydomo.core.failure import Failure
from polydomo.core.pieces import Piece
from polydomo.core.policy import FOREVER
from polydomo.dialects.nfp import json_bodies
from polydomo.wire.frames import frame, join

RESULT = b'{"w1":{"result":7,"failed":false}}'


def ok(name: bytes, *frames: bytes) -> Piece:
    return Piece(name, join(frames), "", "", b"")


def test_how_a_job_stands():
    assert json.loads(json_bodies.job_status(b'u"1', b"svc", b'["w"]', b"QUEUED", None)) == {
        "uuid": 'u"1',
        "service": "svc",
        "target": '["w"]',
        "status": "QUEUED",
        "workers": None,
    }
    assert json.loads(json_bodies.job_status(b"u", b"\xff", b"", b"X", [b"a", b"\0\1"]))["workers"] == [
        "a",
        "0x0001",
    ]


def test_a_failure_body_has_the_workers_detail():
    detail = b'{"reason":"worker-error","message":"boom","kind":"ValueError","traceback":"..."}'
    failure = Failure("worker-error", 'the "worker" failed', None, detail)
    said = json.loads(json_bodies.failure_body(b"u", b"svc", failure))
    assert said["error"] == 'the "worker" failed'
    assert said["errors"] == [said["error"]]
    assert (said["reason"], said["status"], said["uuid"], said["service"]) == (
        "worker-error",
        "FAILED",
        "u",
        "svc",
    )
    assert (said["message"], said["kind"], said["traceback"]) == ("boom", "ValueError", "...")
    broken = Failure("expired", "x", None, b"not json")
    assert "message" not in json.loads(json_bodies.failure_body(b"u", b"svc", broken))


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (Failure(reasons.EXPIRED, ""), b"408"),
        (Failure(reasons.DEADLINE, ""), b"408"),
        (Failure(reasons.BAD_TARGET, ""), b"400"),
        (Failure(reasons.DUPLICATE, ""), b"400"),
        (Failure(reasons.BAD_SERVICE, ""), b"400"),
        (Failure(reasons.QUEUE_FULL, ""), b"500"),
        (Failure(reasons.EXHAUSTED, ""), b"500"),
        (Failure(reasons.STORE, ""), b"500"),
        (Failure(reasons.WORKER_ERROR, ""), b"500"),
        (Failure(reasons.WORKER_ERROR, "", None, b'{"status":417}'), b"417"),
        (Failure(reasons.WORKER_ERROR, "", None, b'{"status":408}'), b"408"),
        (Failure(reasons.WORKER_ERROR, "", None, b'{"status":200}'), b"500"),
        (Failure(reasons.WORKER_ERROR, "", None, b'{"status":"\xff"}'), b"500"),
    ],
)
def test_the_status_of_a_failure(failure: Failure, status: bytes):
    assert json_bodies.failure_status(failure) == status


@pytest.mark.parametrize(
    ("frames", "value"),
    [
        ([b'{"a": 1}'], {"a": 1}),
        ([b"text"], "text"),
        ([b"12"], 12),
        ([b""], ""),
        ([b"\xff\0"], {"base64": "/wA="}),
        ([b"1", b"two"], [1, "two"]),
        ([], []),
        ([b'"\\ud800"'], '"\\ud800"'),
    ],
)
def test_any_body_is_a_json_value(frames: list[bytes], value: object):
    assert json.loads(json_bodies.value(join(frames))) == value


def test_gathered_results_are_named():
    pieces = [
        ok(b"w1", RESULT),
        ok(b"w2", b"plain"),
        Piece(b"w3", None, reasons.WORKER_ERROR, "no", b'{"message":"boom","kind":"KeyError"}'),
        Piece(b"w4", None, reasons.EXPIRED, "late", b""),
        ok(b"w5", b'{"w5":1,"more":2}'),
    ]
    assert json.loads(json_bodies.merge(pieces)) == {
        "w1": {"result": 7, "failed": False},
        "w2": "plain",
        "w3": {
            "failed": True,
            "reason": "worker-error",
            "error": "no",
            "message": "boom",
            "kind": "KeyError",
        },
        "w4": {"failed": True, "reason": "expired", "error": "late", "message": "late"},
        "w5": {"w5": 1, "more": 2},
    }


def test_norfab_s_own_results_stay_as_they_are():
    assert json_bodies.norfab_result(b"w1", b"w1", frame(RESULT), b"u", b"svc") is not None
    assert json_bodies.norfab_result(b"w1", b"w1", frame(RESULT), b"u", b"svc") == RESULT
    assert json.loads(json_bodies.norfab_result(b"w1", b"w9", frame(RESULT), b"u", b"svc")) == {
        "w9": {"result": 7, "failed": False}
    }


def test_others_results_look_like_norfab_s():
    said = json.loads(
        json_bodies.norfab_result(b"w", b"w", frame(b"hello"), b"u", b"svc", frame(b'{"task":"task"}'))
    )["w"]
    assert (said["result"], said["failed"], said["errors"], said["juuid"]) == ("hello", False, [], "u")
    assert (said["service"], said["status"], said["task"]) == ("svc", "completed", "task")
    failed = json.loads(json_bodies.norfab_failure(b"w", Failure(reasons.EXPIRED, "late"), b"u", b"svc"))["w"]
    assert (failed["result"], failed["failed"], failed["errors"]) == (None, True, ["late"])
    both = json_bodies.norfab_pieces(
        [ok(b"w1", RESULT), Piece(b"w2", None, "expired", "late", b"")], b"u", b"s"
    )
    assert {name: part["failed"] for name, part in json.loads(both).items()} == {"w1": False, "w2": True}


@pytest.mark.parametrize("data", [b"{}", b'{"task":"echo","kwargs":{},"args":[]}', b'{"a":1e308}'])
def test_a_job_for_norfab_s_workers_is_a_json_object(data: bytes):
    assert json_bodies.is_task(frame(data))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        frame(b""),
        frame(b"x"),
        frame(b"[]"),
        frame(b"null"),
        frame(b"{"),
        frame(b'{"a":"\xff"}'),
        frame(b'{"a":"\\ud800"}'),
        frame(b'{"a":1e999}'),
        frame(b'{"a":NaN}'),
        frame(b'{"a":' + b"9" * 400 + b"}"),
        frame(b'{"a":' + b"[" * 2000 + b"]" * 2000 + b"}"),
        join([b"{}", b"{}"]),
    ],
)
def test_nothing_else_is_shown_to_them(body: bytes):
    """Whatever orjson refuses ends a thread of norfab's worker for good."""
    assert not json_bodies.is_task(body)


def test_options_and_timeout_of_a_body():
    options = json_bodies.options_in(frame(b'{"timeout": 5, "options": {"key": "k", "priority": 2}}'), True)
    assert (options.key, options.priority, options.timeout, options.wait) == (b"k", 2, 5.0, 5.0)
    assert options.durable
    options = json_bodies.options_in(
        frame(b'{"timeout":5,"options":{"timeout":7,"wait":9,"durable":false}}'), True
    )
    assert (options.timeout, options.wait, options.durable) == (7.0, 9.0, False)


def test_the_timeout_at_the_end_of_norfab_s_jobs():
    for data in (b'{"task":"x","timeout":600}', b'{"task":"' + b"x" * 300 + b'","timeout":600}'):
        options = json_bodies.options_in(frame(data), True)
        assert (options.timeout, options.wait, options.durable) == (600.0, 600.0, True)
    options = json_bodies.options_in(frame(b'{"options":{"wait":1},"timeout":600}'), True)
    assert (options.timeout, options.wait) == (600.0, 1.0)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        frame(b""),
        frame(b"hello"),
        frame(b'"timeout"'),
        frame(b'{"timeout": "soon"}'),
        frame(b'{"timeout": true}'),
        frame(b'{"timeout": null}'),
        frame(b'{"kwargs": {"options": 1, "timeout": 2}}'),
        frame(b'{"timeout": 5'),
        join([b'{"timeout": 5}', b"second"]),
    ],
)
def test_bodies_without_them(body: bytes):
    options = json_bodies.options_in(body, False)
    assert (options.timeout, options.wait, options.deadline, options.key) == (0.0, -1.0, FOREVER, b"")


@pytest.mark.parametrize("data", [b'{"options": 1}', b'{"options": {"x": 1}}', b'{"timeout": -1}'])
def test_wrong_ones_are_refused(data: bytes):
    with pytest.raises(ValueError, match=r"option|timeout"):
        json_bodies.options_in(frame(data), False)


@pytest.mark.parametrize(
    ("frames", "kind", "body"),
    [
        ([b"done", b"x"], "done", b"x"),
        ([b'{"event_type":"progress","a":1}'], "progress", b'{"event_type":"progress","a":1}'),
        ([b'{"event_type":7}'], "event", b'{"event_type":7}'),
        ([b"anything"], "event", b"anything"),
        ([], "event", b""),
    ],
)
def test_the_kind_of_an_event(frames: list[bytes], kind: str, body: bytes):
    assert json_bodies.event_in(frames) == (kind, body)


def test_events_for_norfab_s_clients():
    said = json.loads(json_bodies.norfab_event(b"w", "step", b"half way", b"u", b"svc", b'"t"'))
    assert (said["worker"], said["message"], said["task"], said["uuid"]) == ("w", "half way", "t", "u")
    assert said["event_type"] == "progress"
    assert json.loads(json_bodies.rename_worker(b'{"worker":"a","x":[1]}', b"b")) == {"worker": "b", "x": [1]}
    assert json_bodies.rename_worker(b"no json", b"b") == b"no json"
