"""Endpoints: `tcp://HOST:PORT` and `ipc://PATH` for ZeroMQ and NNG, `HOST:PORT` for HTTP."""

from __future__ import annotations

import re
from typing import NamedTuple

from polydomo.errors import ConfigError

_TCP = re.compile(r"^tcp://(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^:\[\]/]+)):(?P<port>\d+|\*)/?\Z")


class Endpoint(NamedTuple):
    """TCP endpoint (`host`, `port`) or Unix socket (`path`; in Linux's abstract namespace if it begins with `@`)."""

    host: str
    port: int
    path: str

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
        return f"tcp://{host}:{self.port}"


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


def parse_address(text: str) -> Endpoint:
    """Return an address for HTTP: HOST:PORT, also written as a URL; `*` means all interfaces or any port."""
    bare = text.removeprefix("http://").removesuffix("/")
    try:
        return parse(f"tcp://{bare}", binding=True)
    except ConfigError as error:
        raise ConfigError(
            f"{text!r} is not an address to listen on", hint="write 127.0.0.1:8080, [::1]:8080 or *:8080"
        ) from error
