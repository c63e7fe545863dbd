"""Who sent a request: the principal of its bearer token, else of its connection.

A connection's principal is that of the client certificate, else the listener's, else `anonymous`. A token that is not
valid is always refused: a client that sends one would not expect to be somebody else. Authorization of another scheme
than Bearer is for a proxy, and ignored.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from polydomo.errors import ConfigError
from polydomo.security.provider_keys import KeysUnavailable, ProviderKeys
from polydomo.security.token_text import BEARER
from polydomo.security.tokens import TokenChecker, TokenFolder, TokenRefused
from polydomo.server.log import Log
from polydomo.server.security_settings import OidcSection
from polydomo.web.api.problems import HttpProblem, problem
from polydomo.web.callers import caller_name
from polydomo.web.connection import SCOPE, HttpConnection

if TYPE_CHECKING:
    from polydomo.security.oidc import JwtChecker
    from polydomo.server.server import BrokerServer

log = Log()

# The longest header that is looked at: tokens of identity providers have some kilobytes.
HEADER_MAX: Final = 16 * 1024

_BEARER: Final = b"bearer"


class Authentication:
    """Authentication of the requests to one server. Raises ConfigError if the settings are not complete."""

    def __init__(self, server: BrokerServer) -> None:
        self._server = server
        folder = server.settings.keys_folder()
        self._tokens = TokenChecker(TokenFolder(Path(folder))) if folder else None
        self._provider = _provider(server.settings.oidc)

    def principal_of(self, scope: MutableMapping[str, Any]) -> str:
        """Return the name of a request's principal; raise HttpProblem: 401 if its token is not valid, 503 if the keys
        to check it are not at hand yet."""
        connection: HttpConnection | None = scope.get(SCOPE)
        token = None
        for name, value in scope["headers"]:
            if name == b"authorization":
                scheme, _, rest = value.partition(b" ")
                if scheme.lower() == _BEARER:
                    if token is not None:
                        raise self._refusal(connection, "the request has two tokens")
                    token = rest.strip()
        if token is None:
            return caller_name(scope)
        try:
            return self._check(token)
        except TokenRefused as refused:
            raise self._refusal(connection, refused.message) from None
        except KeysUnavailable as error:
            raise problem("not-ready", error.message) from None

    def _check(self, token: bytes) -> str:
        """Return the principal of a token; raise TokenRefused if it is not valid."""
        if len(token) > HEADER_MAX or not token.isascii():
            raise TokenRefused("the token is malformed")
        text = token.decode("ascii")
        if self._provider is not None and not text.startswith(BEARER):
            return self._provider.principal_of(text)
        if self._tokens is None:
            raise TokenRefused("this broker has no tokens")
        return self._tokens.principal_of(text)

    def _refusal(self, connection: HttpConnection | None, reason: str) -> HttpProblem:
        """Log a refused token and return the problem."""
        if connection is not None:
            self._server.log_peer("HTTP request refused", connection, reason)
            self._server.audit.refused(connection.address, reason)
        return unauthenticated(reason, refused=True)


def unauthenticated(detail: str, *, refused: bool = False) -> HttpProblem:
    """Return the problem of a request without valid credentials; `refused`: it had a token (RFC 6750 §3)."""
    challenge = 'Bearer realm="polydomo"' + (', error="invalid_token"' if refused else "")
    return problem("unauthenticated", detail, {"www-authenticate": challenge})


def _provider(section: OidcSection) -> JwtChecker | None:
    """Return the check of an OpenID provider's tokens; None: there is no provider."""
    if not section.issuer:
        return None
    if not section.audience:
        raise ConfigError(
            "oidc.issuer is set, and oidc.audience is not", hint="set the audience of the tokens"
        )
    try:
        from polydomo.security.oidc import JwtChecker, OidcRules  # here, because the package is optional
    except ImportError as error:
        raise ConfigError(
            f"oidc.issuer needs PyJWT: {error}", hint="pip install 'polydomo[oidc]', or remove [oidc]"
        ) from error
    keys = ProviderKeys(section.issuer, section.keys, _in_background, _log_trouble)
    rules = OidcRules(section.issuer, section.audience, section.algorithms, section.claim, section.leeway)
    return JwtChecker(rules, keys)


def _in_background(work: Callable[[], None]) -> None:
    """Run a function in a thread that does not delay the end of the process."""
    threading.Thread(target=work, name="oidc", daemon=True).start()


def _log_trouble(reason: str) -> None:
    log.warning("the keys of the OpenID provider cannot be fetched", reason=reason)
