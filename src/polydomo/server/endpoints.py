"""Endpoints: `tcp://HOST:PORT` and `ipc://PATH` for ZeroMQ and NNG, `HOST:PORT` for HTTP; with TLS `tls+tcp://HOST:PORT`
for NNG and `https://HOST:PORT` for HTTP.

What a broker listens on may have options, which say how peers are identified that have no key:

tcp://HOST:PORT?principal=NAME     all peers act for the principal NAME
ipc://PATH?auth=user               each peer acts for the user of its process, `user:NAME`
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import unquote

from polydomo.errors import ConfigError
from polydomo.server.identification import BY_KEY, PEER_CREDENTIALS, Identification

_TCP = re.compile(r"^tcp://(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^:\[\]/]+)):(?P<port>\d+|\*)/?\Z")

# Names of principals that the operator gives. Those of other origin have a prefix and a colon.
_PRINCIPAL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,63}")

# NNG's TCP with TLS.
TLS_SCHEME = "tls+tcp"

# Options of a listener.
PRINCIPAL = "principal"
AUTH = "auth"
BY_USER = "user"


class Endpoint(NamedTuple):
    """TCP endpoint (`host`, `port`) or Unix socket (`path`; in Linux's abstract namespace if it begins with `@`)."""

    host: str
    port: int
    path: str
    tls: bool = False

    @property
    def is_ipc(self) -> bool:
        return bool(self.path)

    @property
    def unix_path(self) -> str:
        """Return the path in the operating system's form."""
        return "\0" + self.path[1:] if self.path.startswith("@") else self.path

    def __str__(self) -> str:
        if self.path:
            return f"ipc://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{TLS_SCHEME if self.tls else 'tcp'}://{host}:{self.port}"


class Listener(NamedTuple):
    """Endpoint to listen on, and the identification of its peers."""

    endpoint: Endpoint
    identification: Identification


def parse(text: str, *, binding: bool = False) -> Endpoint:
    """Return an endpoint or raise ConfigError. `*` (all interfaces, any port) is allowed with `binding` only."""
    if text.startswith("ipc://") and len(text) > len("ipc://"):
        return Endpoint("", 0, text[len("ipc://") :])
    match = _TCP.match(text)
    if match is None:
        raise ConfigError(
            f"{text!r} is not an endpoint",
            hint="write tcp://127.0.0.1:5555, tcp://[::1]:5555 or ipc:///run/x.sock",
        )
    host = match["six"] or match["host"]
    port = 0 if match["port"] == "*" else int(match["port"])
    if port > 65535 or (not binding and (port == 0 or host == "*")):
        raise ConfigError(f"{text!r} names no host and port to connect to", hint="write tcp://HOST:PORT")
    return Endpoint("" if host == "*" else host, port, "")


def parse_listener(text: str, *, tls: bool = False) -> Listener:
    """Return what a text in `broker.zmq`, `broker.events` or (with `tls`) `broker.nng` means, or raise ConfigError."""
    return _parse_listener(text, _parse_tls_place if tls else _parse_plain_place)


def parse_address(text: str) -> Listener:
    """Return what a text in `broker.http` means: HOST:PORT or a URL; `*` is for all interfaces or any port."""
    return _parse_listener(text, _parse_http_place)


def endpoint_part(text: str) -> str:
    """Return the text of a listener without its options."""
    return text.partition("?")[0]


def with_port_of(text: str, bound: str) -> str:
    """Return the text of a listener whose port the system chose with the bound endpoint in the place of its own."""
    place, separator, options = text.partition("?")
    return f"{bound}{separator}{options}" if is_any_port(place) else text


def is_any_port(text: str) -> bool:
    """Return whether the system is to choose the port of a listener."""
    return endpoint_part(text).endswith((":*", ":0"))


def _parse_plain_place(place: str) -> Endpoint:
    if place.startswith(f"{TLS_SCHEME}://"):
        raise ConfigError(f"{place!r}: ZeroMQ has no TLS", hint='set security.curve = "on" to encrypt')
    return parse(place, binding=True)


def _parse_tls_place(place: str) -> Endpoint:
    bare = place.removeprefix(f"{TLS_SCHEME}://")
    if bare == place:
        return parse(place, binding=True)
    return parse(f"tcp://{bare}", binding=True)._replace(tls=True)


def _parse_http_place(place: str) -> Endpoint:
    bare = place.removeprefix("http://").removeprefix("https://").removesuffix("/")
    try:
        return parse(f"tcp://{bare}", binding=True)._replace(tls=place.startswith("https://"))
    except ConfigError as error:
        raise ConfigError(
            f"{place!r} is not an address to listen on",
            hint="write 127.0.0.1:8080, [::1]:8080, *:8080 or https://*:8443",
        ) from error


def _parse_listener(text: str, parse_place: Callable[[str], Endpoint]) -> Listener:
    place, separator, options = text.partition("?")
    endpoint = parse_place(place)
    return Listener(endpoint, _parse_options(text, options, endpoint) if separator else BY_KEY)


def _parse_options(text: str, options: str, endpoint: Endpoint) -> Identification:
    name, _, value = options.partition("=")
    value = unquote(value)
    if name == PRINCIPAL and _PRINCIPAL.fullmatch(value):
        return Identification(principal=value)
    if name == PRINCIPAL:
        raise ConfigError(
            f"{text!r}: {value!r} cannot be a principal's name",
            hint="1 to 64 letters, digits and . _ @ -, and no option after it",
        )
    if (name, value) != (AUTH, BY_USER):
        raise ConfigError(
            f"{text!r} has the unknown option {options!r}",
            hint=f"write ?{PRINCIPAL}=NAME or ?{AUTH}={BY_USER}",
        )
    if not endpoint.is_ipc:
        raise ConfigError(
            f"{text!r}: only the user of a local process is known, on ipc://PATH",
            hint="write ?principal=NAME",
        )
    if PEER_CREDENTIALS is None:
        raise ConfigError(f"{text!r}: this system does not tell the users of processes", hint="use Linux")
    return Identification(by_user=True)
