"""The OpenAPI document is whole and true: schemathesis asks everything it describes, rightly and wrongly, and nothing
comes back that it does not say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web.api.conftest import Place
from tests.web.api.site import Site

CONFIG = """
seed = 4

[generation]
max-examples = {examples}
no-shrink = true

# Sound requests are often refused here: there is no such job, no such worker, nobody who offers the service.
[checks.positive_data_acceptance]
enabled = false

# That a job fails because its worker is missing or the store is in trouble is an answer; 500 never is.
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 501, 502, 503, 504, 507, 508]

# An attempt that is over is over, whatever its worker has to say.
[checks.negative_data_rejection]
expected-statuses = [400, 403, 404, 405, 406, 408, 409, 410, 413, 415, 429, 431]

# Each line is answered by itself.
[[operations]]
include-path = "/v1/services/{service}/bulk"
checks.negative_data_rejection.enabled = false
"""


@pytest.fixture(scope="module")
def document(site: Site) -> dict[str, Any]:
    answer = site.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    assert site.get("/openapi.json", if_none_match=answer.headers["etag"]).status == 304
    found: dict[str, Any] = answer.json()
    return found


def operations(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{method.upper()} {path}", operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def test_every_operation_is_described(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    known = {tag["name"] for tag in document["tags"]}
    names = [operation["operationId"] for _, operation in operations(document)]
    assert len(set(names)) == len(names)
    for name, operation in operations(document):
        assert operation["summary"], name
        assert operation["description"], name
        assert set(operation["tags"]) <= known, name
        for parameter in operation.get("parameters", ()):
            assert parameter.get("description"), f"{name}: {parameter['name']}"


def test_every_operation_has_an_example(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        contents = [
            content
            for status, answer in operation["responses"].items()
            if status < "300"
            for content in answer.get("content", {}).values()
        ]
        assert not contents or any("example" in one or "examples" in one for one in contents), name
        sent = operation.get("requestBody", {}).get("content", {}).values()
        assert not sent or any("example" in one or "examples" in one for one in sent), name


def test_every_failure_is_a_problem(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        for status, answer in operation["responses"].items():
            if status >= "400":
                assert list(answer["content"]) == ["application/problem+json"], f"{name}: {status}"


def test_a_page_for_people_that_loads_nothing(site: Site, document: dict[str, Any]) -> None:
    assert site.get("/").headers["location"] == "/docs"
    answer = site.get("/docs")
    page = answer.body.decode()
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "<script" not in page
    assert re.findall(r"(?:src|href)=(\S+?)>", page) == ["openapi.json"]
    for path in document["paths"]:
        assert f"<code>{path}</code>" in page


@pytest.fixture
def another_place(tmp_path: Path) -> Iterator[Place]:
    """One of its own: what is made up there shows in every list."""
    made = Place(tmp_path / "another")
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.peers
def test_schemathesis_finds_nothing(
    another_place: Place, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    place = another_place
    config = tmp_path / "schemathesis.toml"
    examples = pytestconfig.getoption("--schema-examples")
    config.write_text(CONFIG.replace("{examples}", str(examples)))
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run"]
    command += [f"http://{place.broker.http}/openapi.json", "--phases", "examples,coverage,fuzzing"]
    command += ["--no-color", "--warnings", "off"]
    hooks = {"SCHEMATHESIS_HOOKS": "tests.web.api.ndjson_hooks", "PYTHONPATH": os.getcwd()}
    ran = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | hooks,
        capture_output=True,
        text=True,
        timeout=60 + 60 * examples,
    )
    assert ran.returncode == 0, f"{ran.stdout[-20_000:]}{ran.stderr[-2000:]}"
    assert "a request failed" not in place.broker.log()
    assert place.call(b"echo", b"still here") == b"still here"
