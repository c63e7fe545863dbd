"""The principal of a request."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from polydomo.core.principals import ANONYMOUS
from polydomo.errors import ConfigError
from polydomo.security.tokens import TokenFolder
from polydomo.server.security_settings import OidcSection
from polydomo.server.settings import Settings
from polydomo.web.api.problems import HttpProblem
from polydomo.web.authentication import HEADER_MAX, Authentication
from polydomo.web.callers import PRINCIPAL
from polydomo.web.connection import SCOPE
from tests.support.oidc import AUDIENCE, ISSUER, public_jwk, token


class Server:
    """As much of a server as authentication sees."""

    def __init__(self, keys: Path | str) -> None:
        self.settings = Settings()
        self.settings.broker.data = ""
        self.settings.security.keys = str(keys)
        self.logged: list[tuple[str, str]] = []
        self.audited: list[tuple[str, str]] = []
        self.audit = self

    def refused(self, address: str, reason: str) -> None:
        self.audited.append((address, reason))

    def log_peer(self, event: str, peer: Any, reason: str) -> None:
        self.logged.append((event, reason))


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def authentication(server: Server) -> Authentication:
    return Authentication(server)  # type: ignore[arg-type]


def scope(*credentials: bytes, principal: str | None = None) -> dict[str, Any]:
    headers = [(b"host", b"x"), *((b"authorization", one) for one in credentials)]
    if principal is None:
        return {"headers": headers}
    return {
        "headers": headers,
        PRINCIPAL: principal,
        SCOPE: SimpleNamespace(address="1.2.3.4:5", listener="x"),
    }


def refusal(server: Server, *credentials: bytes) -> HttpProblem:
    with pytest.raises(HttpProblem) as caught:
        authentication(server).principal_of(scope(*credentials, principal="local"))
    assert caught.value.status == 401
    assert caught.value.headers["www-authenticate"] == 'Bearer realm="polydomo", error="invalid_token"'
    return caught.value


def test_a_request_without_a_token_is_its_connections(server: Server) -> None:
    assert authentication(server).principal_of(scope()) == ANONYMOUS
    assert authentication(server).principal_of(scope(principal="local")) == "local"


def test_a_token_stands_for_its_principal_whatever_the_connection(server: Server, tmp_path: Path) -> None:
    text, _ = TokenFolder(tmp_path).new("shop-1", None)
    found = authentication(server)
    for scheme in (b"Bearer ", b"bearer ", b"BEARER  "):
        assert found.principal_of(scope(scheme + text.encode(), principal="local")) == "shop-1"


def test_a_bad_token_is_refused_and_logged_also_where_none_is_needed(server: Server, tmp_path: Path) -> None:
    text, token = TokenFolder(tmp_path).new("shop-1", None)
    TokenFolder(tmp_path).revoke(token)
    assert "was revoked" in refusal(server, b"Bearer " + text.encode()).detail
    assert refusal(server, b"Bearer pdm_" + b"x" * 40).detail == "the token is unknown"
    for malformed in (b"Bearer", b"Bearer ", b"Bearer \xff", b"Bearer " + b"x" * (HEADER_MAX + 1)):
        assert refusal(server, malformed).detail == "the token is malformed"
    assert len(server.logged) == 6
    assert server.audited == [("1.2.3.4:5", reason) for _, reason in server.logged]
    assert text not in str(server.logged)


def test_a_request_has_one_token_at_most(server: Server, tmp_path: Path) -> None:
    text, _ = TokenFolder(tmp_path).new("shop-1", None)
    bearer = b"Bearer " + text.encode()
    assert refusal(server, bearer, bearer).detail == "the request has two tokens"


def test_credentials_of_other_schemes_are_not_ours(server: Server) -> None:
    assert authentication(server).principal_of(scope(b"Basic eDp5", principal="local")) == "local"


def test_without_a_key_folder_every_token_is_refused() -> None:
    assert refusal(Server(""), b"Bearer pdm_" + b"x" * 40).detail == "this broker has no tokens"


# An OpenID provider


def with_provider(server: Server, tmp_path: Path, **section: str) -> Server:
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [public_jwk("EC", "k1")]}))
    given = {"issuer": ISSUER, "audience": AUDIENCE, "keys": str(tmp_path / "keys.json"), **section}
    server.settings.oidc = OidcSection(algorithms=["ES256"], **given)  # type: ignore[arg-type]
    return server


def test_tokens_of_a_provider_are_accepted_beside_ours(server: Server, tmp_path: Path) -> None:
    found = authentication(with_provider(server, tmp_path))
    theirs = token(kind="EC", algorithm="ES256")
    ours, _ = TokenFolder(tmp_path).new("shop-1", None)
    assert found.principal_of(scope(b"Bearer " + theirs.encode())) == "oidc:anna"
    assert found.principal_of(scope(b"Bearer " + ours.encode())) == "shop-1"
    assert refusal(server, b"Bearer pdm_" + b"x" * 40).detail == "the token is unknown"
    expired = token(kind="EC", algorithm="ES256", exp=1)
    assert refusal(server, b"Bearer " + expired.encode()).detail == "the token has expired"
    assert [reason for _, reason in server.logged] == ["the token is unknown", "the token has expired"]


def test_a_token_that_cannot_be_checked_yet_may_be_sent_again(server: Server, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        keys = f"http://127.0.0.1:{silent.getsockname()[1]}/keys"
        found = authentication(with_provider(server, tmp_path, keys=keys))
        bearer = b"Bearer " + token(kind="EC", algorithm="ES256").encode()
        with pytest.raises(HttpProblem) as caught:
            found.principal_of(scope(bearer, principal="local"))
    assert caught.value.status == 503
    assert caught.value.headers["retry-after"]
    assert not server.logged


def test_a_provider_needs_an_audience_and_the_package(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"oidc\.audience is not"):
        authentication(with_provider(server, tmp_path, audience=""))
    with_provider(server, tmp_path)
    monkeypatch.delitem(sys.modules, "polydomo.security.oidc", raising=False)
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(ConfigError, match="needs PyJWT") as caught:
        authentication(server)
    assert "polydomo[oidc]" in caught.value.advice
