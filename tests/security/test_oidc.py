"""Tokens of an OpenID provider: the usual attacks, with keys of our own."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from polydomo.security.oidc import JwtChecker, OidcRules
from polydomo.security.provider_keys import ProviderKeys
from polydomo.security.tokens import TokenRefused
from tests.support.oidc import AUDIENCE, ISSUER, private_key, public_jwk, token

KEYS = [public_jwk("RSA", "k1"), public_jwk("EC", "k2"), public_jwk("OKP", "k3"), public_jwk("weak", "k4")]


def at_once(work: Callable[[], None]) -> None:
    work()


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., str]:
    """Return the principal of a token, with the rules changed as wanted."""
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": KEYS}))
    keys = ProviderKeys(ISSUER, str(file), at_once, pytest.fail)
    usual = OidcRules(ISSUER, AUDIENCE, ["RS256", "ES256", "EdDSA"], "sub", 10.0)

    def principal_of(text: str, **changes: Any) -> str:
        return JwtChecker(usual._replace(**changes), keys).principal_of(text)

    return principal_of


def with_header(text: str, **header: Any) -> str:
    """A token with another header and the same signature."""
    encoded = base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode()
    return ".".join([encoded, *text.split(".")[1:]])


@pytest.mark.parametrize(
    ("kind", "algorithm", "kid"), [("RSA", "RS256", "k1"), ("EC", "ES256", "k2"), ("OKP", "EdDSA", "k3")]
)
def test_a_valid_token_stands_for_its_subject(
    check: Callable[..., str], kind: str, algorithm: str, kid: str
) -> None:
    text = token(kind=kind, algorithm=algorithm, kid=kid)
    assert check(text) == "oidc:anna"
    header, claims, signature = text.split(".")
    for changed in (f"{header}.{claims}.{'A' * len(signature)}", f"{header}.{claims}."):
        with pytest.raises(TokenRefused, match="signature is wrong"):
            check(changed)


def test_another_claim_may_name_the_principal(check: Callable[..., str]) -> None:
    assert check(token(email="anna@example.org"), claim="email") == "oidc:anna@example.org"
    assert check(token(aud=["others", AUDIENCE])) == "oidc:anna"


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", ""])
def test_an_unsigned_token_is_refused(check: Callable[..., str], name: str) -> None:
    unsigned = token().rpartition(".")[0] + "."
    with pytest.raises(TokenRefused, match="algorithm is not allowed"):
        check(with_header(unsigned, alg=name, typ="JWT", kid="k1"))


def test_a_token_signed_with_the_public_key_as_a_secret_is_refused(check: Callable[..., str]) -> None:
    """The classic confusion of RS256 and HS256."""
    public = private_key("RSA").public_key()
    for secret in (
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        json.dumps(KEYS[0]).encode(),
    ):
        text = hmac_token(secret)
        with pytest.raises(TokenRefused, match="algorithm is not allowed"):
            check(text)
        with pytest.raises(TokenRefused, match="signature is wrong"):
            check(with_header(text, alg="RS256", typ="JWT", kid="k1"))


def hmac_token(secret: bytes) -> str:
    """As an attacker makes it: libraries refuse to."""
    text = with_header(token(), alg="HS256", typ="JWT", kid="k1").rpartition(".")[0]
    signature = hmac.digest(secret, text.encode(), hashlib.sha256)
    return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def test_a_key_is_used_for_its_own_kind_of_algorithm_only(check: Callable[..., str]) -> None:
    every = ["RS256", "PS256", "ES256", "EdDSA", "ES384"]
    for algorithm in every[1:]:
        with pytest.raises(TokenRefused):
            check(with_header(token(), alg=algorithm, typ="JWT", kid="k1"), algorithms=every)


def test_an_algorithm_that_is_not_configured_is_refused(check: Callable[..., str]) -> None:
    assert check(token(algorithm="PS256"), algorithms=["PS256"]) == "oidc:anna"
    with pytest.raises(TokenRefused, match="algorithm is not allowed"):
        check(token(algorithm="PS256"))


def test_a_key_that_is_too_short_is_not_used(check: Callable[..., str]) -> None:
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        text = token(kind="weak", kid="k4")
    with pytest.raises(TokenRefused, match="key for the token cannot be used"):
        check(text)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"iss": ISSUER[:-1]}, "another issuer"),
        ({"iss": ISSUER + "/"}, "another issuer"),
        ({"aud": "others"}, "another audience"),
        ({"aud": [AUDIENCE[:-1], ""]}, "another audience"),
        ({"aud": ""}, "lacks a claim"),
        ({"exp": time.time() - 20}, "has expired"),
        ({"nbf": time.time() + 3600}, "not valid yet"),
        ({"exp": None}, "lacks a claim"),
        ({"iss": None}, "lacks a claim"),
        ({"aud": None}, "lacks a claim"),
        ({"sub": None}, "lacks a claim"),
        ({"sub": ""}, "is no name"),
        ({"sub": "x" * 256}, "is no name"),
        ({"sub": "a\nb"}, "is no name"),
        ({"kid": "k9"}, "a key that its issuer does not have"),
        ({"kid": "k2"}, "a key that its issuer does not have"),
        ({"kid": None, "number": 1}, "does not say which key"),
        ({"number": 1}, "signature is wrong"),
        ({"headers": {"crit": ["x"], "x": 1}}, "malformed"),
    ],
)
def test_other_tokens_are_refused(check: Callable[..., str], changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(TokenRefused, match=reason):
        check(token(**changes))


def test_a_token_is_valid_for_the_leeway_after_its_end(check: Callable[..., str]) -> None:
    text = token(exp=time.time() - 5)
    assert check(text) == "oidc:anna"
    with pytest.raises(TokenRefused, match="has expired"):
        check(text, leeway=1.0)


def test_a_key_in_the_token_is_not_used(check: Callable[..., str]) -> None:
    """RFC 7515 §4.1.3: `jwk`, and `jku`, which would be fetched."""
    for header in ({"jwk": public_jwk("RSA", "k1", 1)}, {"jku": "http://127.0.0.1:1/keys"}):
        with pytest.raises(TokenRefused, match="signature is wrong"):
            check(token(number=1, headers=header))


@pytest.mark.parametrize("text", ["", "a", "a.b", "a.b.c", "....", "pdm_x", "e30.e30.e30", "bnVsbA.e30.e30"])
def test_anything_else_is_malformed(check: Callable[..., str], text: str) -> None:
    with pytest.raises(TokenRefused, match=r"malformed|algorithm is not allowed"):
        check(text)
