"""How places are named: `tcp://HOST:PORT` and `ipc://PATH` as ZeroMQ and NNG do, `HOST:PORT` for HTTP."""

from __future__ import annotations

import re
from typing import NamedTuple

from polydomo.errors import ConfigError

_TCP = re.compile(r"^tcp://(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^:\[\]/]+)):(?P<port>\d+|\*)/?\Z")


class Endpoint(NamedTuple):
    """Either `host` and `port`, or `path`. A path that begins with `@` is in Linux's abstract namespace."""

    host: str
    port: int
    path: str

    @property
    def is_ipc(self) -> bool:
        return bool(self.path)

    @property
    def unix_path(self) -> str:
        """The path as the operating system wants it."""
        return "\0" + self.path[1:] if self.path.startswith("@") else self.path

    def __str__(self) -> str:
        if self.path:
            return f"ipc://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port}"


def parse(text: str, *, binding: bool = False) -> Endpoint:
    """An endpoint, or a ConfigError that shows what one looks like. `*` (all interfaces, any port) only to bind."""
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
    """Where HTTP is to listen: HOST:PORT, also written as a URL; `*` for all interfaces or any port."""
    bare = text.removeprefix("http://").removesuffix("/")
    try:
        return parse(f"tcp://{bare}", binding=True)
    except ConfigError as error:
        raise ConfigError(
            f"{text!r} is not an address to listen on", hint="write 127.0.0.1:8080, [::1]:8080 or *:8080"
        ) from error
