"""Tokens over HTTP, at a broker with roles. It has a process of its own: its log and its key folder are looked at."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from polydomo.security.tokens import TokenFolder
from tests.support.broker import BrokerProcess, wait_for
from tests.support.oidc import AUDIENCE, ISSUER, public_jwk, token
from tests.web.api.site import Site, is_problem

TOML = f"""
[principals]
shop = ["client"]
robot = ["worker"]
"oidc:anna" = ["client"]

[oidc]
issuer = "{ISSUER}"
audience = "{AUDIENCE}"
algorithms = ["ES256"]
keys = "KEYS"
"""

JOBS = "/v1/services/echo/jobs"


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder, "keys.json")
        keys.write_text(json.dumps({"keys": [public_jwk("EC", "k1")]}))
        with BrokerProcess(toml=TOML.replace("KEYS", str(keys)), http=True) as found:
            yield found
            assert "Traceback" not in found.log(), found.log()[-5000:]


@pytest.fixture
def site(broker: BrokerProcess) -> Site:
    return Site(broker.http)


@pytest.fixture
def tokens(broker: BrokerProcess) -> TokenFolder:
    return TokenFolder(broker.data / "keys")


def bearer(tokens: TokenFolder, name: str) -> str:
    return f"Bearer {tokens.new(name, 3600)[0]}"


def test_whoever_has_no_token_is_asked_for_one(site: Site) -> None:
    found = site.post(JOBS, b"x")
    is_problem(found, 401, "unauthenticated")
    assert found.headers["www-authenticate"] == 'Bearer realm="polydomo"'
    assert site.get("/healthz").status == 200
    assert site.get("/readyz").status == 200


def test_a_client_and_a_worker_with_tokens_meet(site: Site, tokens: TokenFolder) -> None:
    shop, robot = bearer(tokens, "shop"), bearer(tokens, "robot")

    def serve() -> None:
        poll = json.dumps({"services": ["echo"], "worker": "r2", "wait": 15}).encode()
        got = site.post("/v1/workers/poll", poll, authorization=robot)
        result = f"{got.headers['location']}/result"
        assert site.ask("PUT", result, got.body.upper(), authorization=robot).status == 204

    worker = threading.Thread(target=serve)
    worker.start()
    try:
        found = site.post(JOBS, b"hello", authorization=shop, prefer="wait=15")
        assert (found.status, found.body) == (200, b"HELLO")
    finally:
        worker.join(20)
    is_problem(site.post(JOBS, b"x", authorization=robot), 403, "denied")


def test_a_job_belongs_to_its_token_s_principal(site: Site, tokens: TokenFolder) -> None:
    accepted = site.post(JOBS, b"x", authorization=bearer(tokens, "shop"))
    assert accepted.status == 202
    path = accepted.headers["location"]
    assert site.get(path, authorization=bearer(tokens, "shop")).status == 200, (
        "another token of the same principal"
    )
    for other in (bearer(tokens, "robot"), f"Bearer {token(kind='EC', algorithm='ES256')}"):
        assert site.get(path, authorization=other).status == 404


def test_a_token_counts_from_the_moment_it_is_made_until_it_is_revoked(
    site: Site, tokens: TokenFolder
) -> None:
    text, made = tokens.new("shop", None)
    assert site.post(JOBS, b"x", authorization=f"Bearer {text}").status == 202
    tokens.revoke(made)
    wait_for(lambda: site.post(JOBS, b"x", authorization=f"Bearer {text}").status == 401, 10)
    refused = site.get("/healthz", authorization=f"Bearer {text}")
    assert "was revoked" in is_problem(refused, 401, "unauthenticated")["detail"]
    assert 'error="invalid_token"' in refused.headers["www-authenticate"]


def test_a_provider_s_token_is_accepted_and_a_changed_one_refused(site: Site) -> None:
    good = token(kind="EC", algorithm="ES256")
    assert site.post(JOBS, b"x", authorization=f"Bearer {good}").status == 202
    stranger = token(kind="EC", algorithm="ES256", sub="berta")
    is_problem(site.post(JOBS, b"x", authorization=f"Bearer {stranger}"), 403, "denied")
    forged = token(kind="EC", algorithm="ES256", number=1)
    is_problem(site.post(JOBS, b"x", authorization=f"Bearer {forged}"), 401, "unauthenticated")


def test_refused_tokens_are_logged_and_no_token_is(
    broker: BrokerProcess, site: Site, tokens: TokenFolder
) -> None:
    text, made = tokens.new("shop", 3600)
    tokens.revoke(made)
    site.get("/healthz", authorization=f"Bearer {text}")
    wait_for(lambda: f"the token {made.id} of shop was revoked" in broker.log(), 10)
    assert "pdm_" not in broker.log()
