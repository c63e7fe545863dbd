"""Public keys of an OpenID provider, for the signatures of its tokens.

They come from a file, a URL, or the provider's discovery document (OpenID Connect Discovery §4). They are fetched in
the background, again after REFRESH, and sooner if a token names an unknown key, but never more often than after PAUSE.
While the provider cannot be reached the known keys are used, for STALE at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from http.client import HTTPException
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec

from polydomo.errors import ConfigError, PolydomoError
from polydomo.security.tokens import TokenRefused

# Seconds between two fetches of the keys, the least of them, the age at which keys are no longer used, and the time
# limit of one request to the provider.
REFRESH: Final = 300.0
PAUSE: Final = 30.0
STALE: Final = 86400.0
TIMEOUT: Final = 10.0

# Bytes of a document of the provider, and keys in it; more are not read.
DOCUMENT_MAX: Final = 1024 * 1024
KEYS_MAX: Final = 100

DISCOVERY: Final = "/.well-known/openid-configuration"


class KeysUnavailable(PolydomoError):
    """The keys that a token needs are being fetched, or cannot be: the same token may be valid soon."""


class ProviderKeys:
    """The public keys of a provider.

    - `location`: a file or a URL; empty: that of the provider's discovery document.
    - `background`: runs a function that may block, and never two at a time for one object.
    - `report`: called with the reason when keys could not be fetched.
    """

    def __init__(
        self,
        issuer: str,
        location: str,
        background: Callable[[Callable[[], None]], object],
        report: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuer = issuer
        self._location = location
        self._background = background
        self._report = report
        self._clock = clock
        self._keys: list[dict[str, Any]] = []
        self._loaded: float | None = None  # when the keys were fetched; None: never
        self._tried = -PAUSE  # when the last attempt ended
        self._fetching = False
        if location and not _is_url(location):
            self._keys = _keys_in(_read_file(location), location)
            self._loaded = self._tried = clock()
        else:
            _check_url(location or issuer)
            self._fetch()

    def find(self, kid: str | None, algorithm: str) -> dict[str, Any]:
        """Return the key that a token names, or the only one for its algorithm; raise TokenRefused or
        KeysUnavailable."""
        now = self._clock()
        if now - self._tried >= REFRESH:
            self._fetch()
        if self._loaded is None or now - self._loaded >= STALE:
            self._fetch_after_pause(now)
            raise KeysUnavailable("the keys of the tokens' issuer are not known yet", hint="try again")
        found = [key for key in self._keys if _fits(key, kid, algorithm)]
        if len(found) == 1:
            return found[0]
        if found:
            raise TokenRefused("the token does not say which key has signed it")
        if self._fetch_after_pause(now):
            raise KeysUnavailable("the keys of the tokens' issuer are being fetched", hint="try again")
        raise TokenRefused("the token is signed with a key that its issuer does not have")

    def _fetch_after_pause(self, now: float) -> bool:
        """Fetch the keys unless that was tried just now; return whether they are being fetched."""
        if now - self._tried >= PAUSE:
            self._fetch()
        return self._fetching

    def _fetch(self) -> None:
        if not self._fetching:
            self._fetching = True
            self._background(self._load)

    def _load(self) -> None:
        """Replace the keys; keep the old ones if that fails."""
        try:
            self._keys = self._read()
            self._loaded = self._clock()
        except ConfigError as error:
            self._report(error.message)
        finally:
            self._tried = self._clock()
            self._fetching = False

    def _read(self) -> list[dict[str, Any]]:
        if self._location and not _is_url(self._location):
            return _keys_in(_read_file(self._location), self._location)
        url = self._location
        if not url:
            place = self._issuer.rstrip("/") + DISCOVERY
            document = _decoded(_download(place), place)
            if document.get("issuer") != self._issuer:
                raise ConfigError(f"{place} is about another issuer than {self._issuer}", hint="")
            url = str(document.get("jwks_uri", ""))
            _check_url(url)
        return _keys_in(_download(url), url)


def _fits(key: dict[str, Any], kid: str | None, algorithm: str) -> bool:
    """Return whether a key may have signed a token with this key id and algorithm."""
    return (
        (kid is None or key.get("kid") == kid)
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and key.get("kty") == _KEY_TYPES[algorithm[:2]]
        and key.get("crv") == _CURVES.get(algorithm)
    )


# RFC 7518 §6.1 and RFC 8037 §2, by the beginning of the algorithm's name.
_KEY_TYPES: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}

# RFC 7518 §3.4 and RFC 8037 §3.1.
_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "EdDSA": "Ed25519"}


def _keys_in(data: bytes, place: str) -> list[dict[str, Any]]:
    """Return the keys of a JWK set (RFC 7517 §5)."""
    keys = _decoded(data, place).get("keys")
    if not isinstance(keys, list):
        raise ConfigError(f"{place} has no keys", hint="it must be a JWK set: an object with a list `keys`")
    return [key for key in keys[:KEYS_MAX] if isinstance(key, dict)]


def _decoded(data: bytes, place: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError:
        raise ConfigError(f"{place} is no JSON object", hint="") from None


def _is_url(text: str) -> bool:
    return "://" in text


def _check_url(url: str) -> None:
    """Raise ConfigError unless a URL is fit for keys: nobody on the way may change them."""
    parts = urlsplit(url)
    if not parts.hostname or (
        parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname))
    ):
        raise ConfigError(
            f"{url!r} is not a URL to fetch keys from", hint="write https://…; http:// only for this machine"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read_file(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(DOCUMENT_MAX)
    except OSError as error:
        raise ConfigError(f"cannot read oidc.keys {path}: {error.strerror}", hint="") from error


class _CheckedRedirects(HTTPRedirectHandler):
    """Redirects to URLs that keys may come from."""

    def redirect_request(self, req: Request, *arguments: Any) -> Request | None:
        _check_url(arguments[-1])
        return super().redirect_request(req, *arguments)


def _download(url: str) -> bytes:
    request = Request(url, headers={"Accept": "application/json", "User-Agent": "polydomo"})
    try:
        with build_opener(_CheckedRedirects).open(request, timeout=TIMEOUT) as response:
            data: bytes = response.read(DOCUMENT_MAX)
            return data
    except (OSError, HTTPException, ValueError) as error:  # urllib's own errors are OSErrors
        reason = getattr(error, "reason", "") or error
        raise ConfigError(f"cannot fetch {url}: {reason}", hint="") from error
