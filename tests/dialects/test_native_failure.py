"""Failures of jobs in JSON: whatever was said, what arrives can be read and is the same."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from polydomo.core.failure import EXHAUSTED, WORKER_ERROR, Failure
from polydomo.core.pieces import Piece
from polydomo.dialects.native_failure import MARK, to_client
from polydomo.dialects.nfp import json_bodies, worker_info
from polydomo.wire.frames import frame, split


@given(st.text())
def test_a_native_client_can_read_any_message(message: str) -> None:
    mark, account = split(to_client(Failure(EXHAUSTED, message)))
    assert mark == MARK
    assert json.loads(account) == {"reason": EXHAUSTED, "message": message}


@given(st.text(), st.binary(), st.binary())
def test_an_nfp_client_can_read_any_message(message: str, uuid: bytes, service: bytes) -> None:
    account = json_bodies.failure_detail(b"500", message)
    assert json.loads(account)["message"] == message
    failure = Failure(WORKER_ERROR, message, None, account)
    told = json.loads(json_bodies.failure_body(uuid, service, failure))
    assert (told["error"], told["message"]) == (message, message)
    pieces = [Piece(b"w", None, WORKER_ERROR, message, account)]
    assert json.loads(json_bodies.merge(pieces))["w"]["error"] == message
    assert json.loads(json_bodies.norfab_pieces(pieces, uuid, service))["w"]["errors"] == [
        message or WORKER_ERROR
    ]


@given(st.dictionaries(st.text(), st.text()), st.text())
@example({"kind": "status"}, "no more")
def test_a_worker_s_account_keeps_all_it_says(account: dict[str, str], message: str) -> None:
    account["message"] = message
    failure = worker_info.failure_from(b"400", frame(json.dumps(account, ensure_ascii=False).encode()))
    assert failure.message == message
    assert json.loads(failure.detail) == {"status": 400} | account


@given(st.binary() | st.text().map(lambda text: json.dumps({"task": text, "message": text}).encode()))
def test_whatever_bodies_say_answers_are_json(body: bytes) -> None:
    json.loads(worker_info.failure_from(b"500", frame(body)).detail)
    json.loads(json_bodies.norfab_result(b"w", b"w", frame(body), b"u", b"s", frame(body)))
    json.loads(json_bodies.norfab_event(b"w", "kind", body, b"u", b"s", json_bodies.task_in(frame(body))))


def test_a_task_that_is_no_utf8_is_not_repeated() -> None:
    body = frame(b'{"task":"\xff"}')
    assert json_bodies.task_in(body) == b"null"


def test_an_account_that_is_no_utf8_is_text() -> None:
    failure = worker_info.failure_from(b"500", frame(b'{"message":"\xff"}'))
    assert json.loads(failure.detail)["message"].startswith("the worker answered 500")
