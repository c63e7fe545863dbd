"""Broker URLs: a dialect and the addresses of one or more brokers.

mdp://127.0.0.1:5555             Majordomo over TCP
dcp://broker.example             DagBox; the port is 5555 unless given
nfp://127.0.0.1:5555             NORFAB
memo://127.0.0.1:12703           MemoDB, over NNG; the port is 12703 unless given
wmp://a:5555,b:5556              WMP, for workers: all managers (brokers, devices) at once
mdp://a:5555,b:5556              two brokers: the second takes over when the first is lost
mdp+ipc:///run/polydomo.sock     a Unix socket (several: separated by commas)
mdp+local://name                 a broker in the same process (`polydomo.sdk.testing.LocalBroker`)
memo+tls://a:12703               MemoDB over TLS

A broker with CURVE needs further parts, from the query, else from the environment (`POLYDOMO_SERVER_KEY`,
`POLYDOMO_KEY`, `POLYDOMO_JOIN_TOKEN`), else from a profile (`polydomo profile`):

mdp://a:5555?server_key=KEY&key=FILE     the broker's public key, and the file with the own key pair
mdp://a:5555?server_key=KEY              the process makes a key pair for itself
mdp://a:5555?server_key=KEY&key=FILE&join_token=TOKEN   the broker accepts the key because of the token; the file is
                                                        made if it is missing

TLS uses the system's certificate authorities and no certificate of its own, unless the query or the environment's
`POLYDOMO_CA`, `POLYDOMO_CERTIFICATE` and `POLYDOMO_CERTIFICATE_KEY` name PEM files:

memo+tls://a:12703?ca=FILE&certificate=FILE&certificate_key=FILE
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from polydomo.errors import ConfigError
from polydomo.sdk import profiles
from polydomo.server import endpoints

if TYPE_CHECKING:
    from polydomo.sdk.curve_keys import CurveKeys
    from polydomo.sdk.tls import TlsFiles

DEFAULT_URL = "mdp://127.0.0.1:5555"
DEFAULT_PORT = 5555
DEFAULT_PORTS = {"memo": 12703}  # as in its specification's example
DIALECTS = ("mdp", "dcp", "nfp", "memo", "wmp")

# The environment variables with the default URL, the broker's public key, the name of a key file and a join token.
VARIABLE = "POLYDOMO_URL"
SERVER_KEY_VARIABLE = "POLYDOMO_SERVER_KEY"
KEY_VARIABLE = "POLYDOMO_KEY"
JOIN_TOKEN_VARIABLE = "POLYDOMO_JOIN_TOKEN"

# The parameters of a query, and the characters of a public key (Z85).
SERVER_KEY = "server_key"
KEY = "key"
JOIN_TOKEN = "join_token"
KEY_TEXT = 40

# The files for TLS: parameters of a query, and their environment variables.
TLS_VARIABLES = {
    "ca": "POLYDOMO_CA",
    "certificate": "POLYDOMO_CERTIFICATE",
    "certificate_key": "POLYDOMO_CERTIFICATE_KEY",
}
TLS_DIALECTS = ("memo",)


class Address(NamedTuple):
    """A broker's ZeroMQ or NNG endpoint, or its name in this process."""

    endpoint: endpoints.Endpoint | None
    local: str = ""
    keys: CurveKeys | None = None  # None: without CURVE
    tls: TlsFiles | None = None  # None: without TLS

    def __str__(self) -> str:
        return f"local://{self.local}" if self.endpoint is None else str(self.endpoint)


class Url(NamedTuple):
    """A dialect and the brokers that speak it, in order of preference."""

    dialect: str
    addresses: tuple[Address, ...]


def default_url(profile: str | None = None) -> str:
    """Return the URL of the environment's `POLYDOMO_URL`, else of the profile, else of a broker on this machine."""
    return os.environ.get(VARIABLE) or profiles.choose(profile, "").url or DEFAULT_URL


def parse(text: str | None = None, profile: str | None = None) -> Url:
    """Parse a URL; default: `default_url`. `profile`: the name of the profile with what the URL and the environment do
    not say."""
    text = text or default_url(profile)
    url = check(text)
    if url.addresses[0].endpoint is None or url.addresses[0].tls is not None:
        return url
    keys = _find_keys(url.dialect, _parse_query(text.partition("?")[2]), profiles.choose(profile, text))
    return url._replace(addresses=tuple(address._replace(keys=keys) for address in url.addresses))


def check(text: str) -> Url:
    """Return the dialect and the brokers of a URL, without keys; raise ConfigError if it is malformed."""
    scheme, separator, rest = text.partition("://")
    dialect, _, transport = scheme.partition("+")
    places, _, query = rest.partition("?")
    parts = [part.strip() for part in places.split(",")]
    if not separator or dialect not in DIALECTS or not all(parts):
        raise ConfigError(
            f"{text!r} is not a broker's URL",
            hint=f"write mdp://127.0.0.1:5555 or mdp+ipc:///run/x.sock; dialects: {', '.join(DIALECTS)}",
        )
    parameters = _parse_query(query)
    if transport == "tls" and dialect in TLS_DIALECTS:
        return _with_tls(dialect, parts, parameters)
    if not TLS_VARIABLES.keys().isdisjoint(parameters):
        raise ConfigError(
            f"{text!r}: a URL without TLS has no certificates", hint="write memo+tls://HOST:PORT"
        )
    if transport == "local":
        return Url(dialect, tuple(Address(None, part) for part in parts))
    if transport in ("", "tcp"):
        port = DEFAULT_PORTS.get(dialect, DEFAULT_PORT)
        return Url(dialect, tuple(Address(_tcp(part, port)) for part in parts))
    if transport == "ipc":
        return Url(dialect, tuple(Address(endpoints.parse(f"ipc://{part}")) for part in parts))
    raise ConfigError(
        f"{text!r}: no transport {transport!r}", hint="use tcp, ipc or local, for memo also tls"
    )


def _with_tls(dialect: str, parts: list[str], parameters: dict[str, str]) -> Url:
    """Return a URL with TLS and the files that its parameters or the environment name."""
    if not {SERVER_KEY, KEY, JOIN_TOKEN}.isdisjoint(parameters):
        raise ConfigError(f"{dialect}+tls:// has no CURVE keys", hint="write ?ca=FILE&certificate=FILE")
    from polydomo.sdk.tls import TlsFiles  # here, because few programs need it

    names = TLS_VARIABLES.items()
    files = TlsFiles(*(parameters.get(name) or os.environ.get(variable, "") for name, variable in names))
    if files.key and not files.certificate:
        raise ConfigError(
            "a certificate's key is of no use without the certificate", hint="add ?certificate=FILE"
        )
    places = [_tcp(part, DEFAULT_PORTS[dialect])._replace(tls=True) for part in parts]
    return Url(dialect, tuple(Address(place, tls=files) for place in places))


def _tcp(part: str, port: int) -> endpoints.Endpoint:
    part = part.rstrip("/")
    has_port = ":" in part.rpartition("]")[2]
    return endpoints.parse(f"tcp://{part}" if has_port else f"tcp://{part}:{port}")


def _parse_query(query: str) -> dict[str, str]:
    """Return the parameters by name. A public key need not be %-escaped, although it may contain & and %."""
    found: dict[str, str] = {}
    while query:
        name, _, query = query.partition("=")
        if name not in (SERVER_KEY, KEY, JOIN_TOKEN, *TLS_VARIABLES):
            raise ConfigError(
                f"a broker's URL has no parameter {name!r}",
                hint="write ?server_key=KEY&key=FILE, or ?ca=FILE for TLS",
            )
        if name == SERVER_KEY and len(query) >= KEY_TEXT and query[KEY_TEXT : KEY_TEXT + 1] in ("", "&"):
            found[name], query = query[:KEY_TEXT], query[KEY_TEXT + 1 :]
        else:
            value, _, query = query.partition("&")
            found[name] = unquote(value)
    return found


def _find_keys(dialect: str, parameters: dict[str, str], profile: profiles.Profile) -> CurveKeys | None:
    """Return the keys of a URL, else of the environment, else of the profile; None: none of them has any."""
    server_key = parameters.get(SERVER_KEY) or os.environ.get(SERVER_KEY_VARIABLE) or profile.server_key
    file = parameters.get(KEY) or os.environ.get(KEY_VARIABLE) or profile.key
    join = parameters.get(JOIN_TOKEN) or os.environ.get(JOIN_TOKEN_VARIABLE, "")
    if not server_key and not file and not join:
        return None
    if dialect == "memo":
        raise ConfigError(
            "memo:// connections cannot use CURVE: NNG's protocol has none",
            hint=f"use another dialect, or remove the keys from the URL and {SERVER_KEY_VARIABLE}, {KEY_VARIABLE}",
        )
    if not server_key:
        raise ConfigError(
            f"{f'the key file {file}' if file else 'a join token'} is of no use without the broker's public key",
            hint=f"add ?server_key=KEY to the URL or set {SERVER_KEY_VARIABLE}; 'polydomo keys show' prints it",
        )
    from polydomo.sdk.curve_keys import load_keys  # here, because importing libsodium is slow

    return load_keys(server_key, file, join)
