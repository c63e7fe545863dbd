"""Problems: their form, their kinds, and that nothing else is ever answered when something goes wrong."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.requests import Request

from polydomo.core import failure as reasons
from polydomo.core.failure import Failure
from polydomo.core.principals import ANONYMOUS
from polydomo.server.server import BrokerServer
from polydomo.server.settings import Settings
from polydomo.web.api.app import HttpApp, _unexpected
from polydomo.web.api.problems import KINDS, HttpProblem, problem, problem_of
from polydomo.web.authentication import Authentication
from polydomo.wire.frames import frame, join
from tests.web.api.site import Site, is_problem

REASONS = [
    value
    for name, value in vars(reasons).items()
    if name.isupper() and isinstance(value, str) and "-" in value
] + ["expired", "draining", "cancelled", "deadline", "store"]


def document(found: HttpProblem) -> dict[str, Any]:
    return dict(json.loads(bytes(found.response().body)))


class TestKinds:
    @pytest.mark.parametrize("reason", REASONS)
    def test_every_way_to_fail_has_one(self, reason: str) -> None:
        found = problem_of(Failure(reason, "because"))
        assert found.status >= 400
        assert document(found) == {
            "type": f"/problems/{reason}",
            "title": KINDS[reason].title,
            "status": KINDS[reason].status,
            "detail": "because",
            "reason": reason,
        }

    def test_as_decided(self) -> None:
        statuses = {
            "expired": 504,
            "worker-error": 502,
            "retries-exhausted": 502,
            "queue-full": 429,
            "malformed": 400,
        }
        assert {reason: KINDS[reason].status for reason in statuses} == statuses

    def test_a_reason_that_nobody_knows(self) -> None:
        found = document(problem_of(Failure("odd", "because")))
        assert (found["status"], found["reason"], found["type"]) == (502, "odd", "about:blank")

    def test_limits_say_when_to_come_back(self) -> None:
        assert problem("queue-full").response().headers["retry-after"] == "1"
        assert problem("store").response().headers["retry-after"] == "1"
        assert "retry-after" not in problem("not-found").response().headers

    @pytest.mark.parametrize(
        ("body", "members"),
        [
            (frame(b'{"error": 1}'), {"body": {"error": 1}}),
            (frame(b"bad"), {"text": "bad"}),
            (frame(b"\xff"), {"base64": "/w=="}),
            (join([b"a", b"b"]), {"frames": ["YQ==", "Yg=="]}),
        ],
    )
    def test_a_workers_own_answer_is_in_it(self, body: bytes, members: dict[str, Any]) -> None:
        found = document(problem_of(Failure(reasons.WORKER_ERROR, "no", body, b'{"kind":"KeyError"}')))
        assert found["account"] == {"kind": "KeyError"}
        assert {name: found[name] for name in members} == members

    def test_an_account_that_is_no_json_is_left_out(self) -> None:
        assert "account" not in document(problem_of(Failure(reasons.WORKER_ERROR, "no", None, b"{")))


class TestUnexpected:
    async def test_nothing_of_the_inside_is_told(self) -> None:
        answer = await _unexpected(Request({"type": "http"}), RuntimeError("secret"))
        assert answer.status_code == 500
        assert b"secret" not in bytes(answer.body)

    async def test_it_is_answered_and_logged_and_goes_no_further(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        app = HttpApp(exception_handlers={Exception: _unexpected})
        app.server = cast(BrokerServer, SimpleNamespace(settings=Settings()))
        app.authentication = cast(Authentication, SimpleNamespace(principal_of=lambda scope: ANONYMOUS))

        @app.get("/")
        async def broken() -> None:
            raise RuntimeError("secret")

        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "GET",
            "path": "/",
            "headers": [(b"host", b"localhost")],
            "query_string": b"",
            "state": {},
        }
        await app(scope, receive, send)
        assert sent[0]["status"] == 500
        assert b"secret" not in sent[1]["body"]
        assert "secret" in caplog.text


class TestOverHttp:
    def test_paths_that_are_not_there(self, site: Site) -> None:
        for path in ("/nothing", "/v1", "/v1/services/", "/v1/nothing/at/all"):
            is_problem(site.get(path), 404, "not-found")

    def test_methods_that_are_not_there(self, site: Site) -> None:
        answer = site.ask("PATCH", "/v1/services")
        is_problem(answer, 405, "method-not-allowed")
        assert answer.headers["allow"] == "GET, HEAD"
        assert site.get("/v1/services/echo/pause").headers["allow"] == "POST"
        assert site.ask("PUT", "/v1/services/echo/memo").headers["allow"] == "DELETE, GET, HEAD"

    def test_parameters_that_are_not_right(self, site: Site) -> None:
        found = is_problem(site.get("/v1/services?limit=many"), 400, "malformed")
        assert found["errors"][0]["where"] == "query.limit"
        is_problem(site.get("/v1/services?limit=0"), 400, "malformed")

    def test_every_kind_is_explained_where_its_type_leads(self, site: Site) -> None:
        for reason in KINDS:
            assert site.get(f"/problems/{reason}").json()["meaning"] == KINDS[reason].meaning
        assert len(site.get("/problems").json()["problems"]) == len(KINDS)
        is_problem(site.get("/problems/none"), 404, "not-found")

    def test_head_is_get_without_a_body(self, site: Site) -> None:
        answer = site.ask("HEAD", "/v1/services")
        assert (answer.status, answer.body) == (200, b"")
        assert int(answer.headers["content-length"]) > 2
        assert site.ask("HEAD", "/nothing").status == 404
