"""JSON Web Tokens of an OpenID provider: each stands for the principal `oidc:SUBJECT`.

The issuer, the audience and the algorithms are pinned by the configuration; what a token says about itself only selects
among them. Only asymmetric algorithms can be configured, so a public key cannot be taken for a shared secret. PyJWT
(the extra `oidc`) checks signatures and claims.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import jwt

from polydomo.security.provider_keys import ProviderKeys
from polydomo.security.tokens import TokenRefused

# Prefix of the principals.
PREFIX: Final = "oidc:"

# The longest subject in characters.
SUBJECT_MAX: Final = 255


class OidcRules(NamedTuple):
    """Requirements for a token. `claim` has the subject; `leeway` are the seconds by which clocks may differ."""

    issuer: str
    audience: str
    algorithms: Sequence[str]
    claim: str
    leeway: float


class JwtChecker:
    """Checks the tokens of one provider."""

    def __init__(self, rules: OidcRules, keys: ProviderKeys) -> None:
        self._rules = rules
        self._keys = keys

    def principal_of(self, text: str) -> str:
        """Return the name of the principal that a token stands for; raise TokenRefused if it is not valid, and
        KeysUnavailable if that cannot be said at the moment."""
        rules = self._rules
        try:
            header = jwt.get_unverified_header(text)
        except jwt.PyJWTError:
            raise TokenRefused("the token is malformed") from None
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in rules.algorithms:
            raise TokenRefused("the token's algorithm is not allowed")
        key = _public_key(self._keys.find(kid, algorithm), algorithm)
        try:
            claims = jwt.decode(
                text,
                key,
                [algorithm],
                options={
                    "require": ["exp", "iss", "aud", rules.claim],
                    "enforce_minimum_key_length": True,  # 2048 bits for RSA
                },
                audience=rules.audience,
                issuer=rules.issuer,
                leeway=rules.leeway,
            )
        except jwt.PyJWTError as error:
            raise TokenRefused(_reason(error)) from None
        subject = claims[rules.claim]
        if not isinstance(subject, str) or not 0 < len(subject) <= SUBJECT_MAX or not subject.isprintable():
            raise TokenRefused(f"the token's claim {rules.claim} is no name")
        return PREFIX + subject


# The reasons for which PyJWT refuses a token, the more particular ones first.
_REASONS: Final[dict[type[jwt.PyJWTError], str]] = {
    jwt.InvalidSignatureError: "the token's signature is wrong",
    jwt.ExpiredSignatureError: "the token has expired",
    jwt.ImmatureSignatureError: "the token is not valid yet",
    jwt.InvalidIssuerError: "the token has another issuer",
    jwt.InvalidAudienceError: "the token is for another audience",
    jwt.InvalidKeyError: "the issuer's key for the token cannot be used",
    jwt.MissingRequiredClaimError: "the token lacks a claim: exp, iss, aud or the subject",
}


def _reason(error: jwt.PyJWTError) -> str:
    return next(
        (text for kind, text in _REASONS.items() if isinstance(error, kind)), "the token is malformed"
    )


def _public_key(key: dict[str, Any], algorithm: str) -> jwt.PyJWK:
    try:
        return jwt.PyJWK(key, algorithm)
    except jwt.PyJWTError:
        raise TokenRefused("the issuer's key for the token cannot be used") from None
