"""Python's own HTTP client, for tests: one request, one connection."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """What came back. Header names are in small letters."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Site:
    """A broker's HTTP, by HOST:PORT."""

    def __init__(self, place: str) -> None:
        self.place = place

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """Underscores in a header's name stand for hyphens."""
        connection = http.client.HTTPConnection(self.place, timeout=20)
        try:
            connection.putrequest(method, path, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            if body is not None:
                connection.putheader("content-length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: bytes = b"", **headers: str) -> Answer:
        return self.ask("POST", path, body, **headers)

    def delete(self, path: str, body: bytes | None = None, **headers: str) -> Answer:
        return self.ask("DELETE", path, body, **headers)


def is_problem(answer: Answer, status: int, reason: str) -> dict[str, Any]:
    """It is the document that RFC 9457 and our own rules ask for."""
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert found["status"] == status
    assert found["reason"] == reason
    assert found["type"] == f"/problems/{reason}"
    assert found["title"]
    return found
