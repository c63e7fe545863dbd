"""Broker URLs: a dialect and the addresses of one or more brokers.

mdp://127.0.0.1:5555             Majordomo over TCP
dcp://broker.example             DagBox; the port is 5555 unless given
nfp://127.0.0.1:5555             NORFAB
memo://127.0.0.1:12703           MemoDB, over NNG; the port is 12703 unless given
wmp://a:5555,b:5556              WMP, for workers: all managers (brokers, devices) at once
mdp://a:5555,b:5556              two brokers: the second takes over when the first is lost
mdp+ipc:///run/polydomo.sock     a Unix socket (several: separated by commas)
mdp+local://name                 a broker in the same process (`polydomo.sdk.testing.LocalBroker`)
"""

from __future__ import annotations

import os
from typing import NamedTuple

from polydomo.errors import ConfigError
from polydomo.server import endpoints

DEFAULT_URL = "mdp://127.0.0.1:5555"
DEFAULT_PORT = 5555
DEFAULT_PORTS = {"memo": 12703}  # as in its specification's example
DIALECTS = ("mdp", "dcp", "nfp", "memo", "wmp")

# The environment variable with the default URL.
VARIABLE = "POLYDOMO_URL"


class Address(NamedTuple):
    """A broker's ZeroMQ or NNG endpoint, or its name in this process."""

    endpoint: endpoints.Endpoint | None
    local: str = ""

    def __str__(self) -> str:
        return f"local://{self.local}" if self.endpoint is None else str(self.endpoint)


class Url(NamedTuple):
    """A dialect and the brokers that speak it, in order of preference."""

    dialect: str
    addresses: tuple[Address, ...]


def parse(text: str | None = None) -> Url:
    """Parse a URL; default: the environment's `POLYDOMO_URL`, else a broker on this machine."""
    text = text or os.environ.get(VARIABLE) or DEFAULT_URL
    scheme, separator, rest = text.partition("://")
    dialect, _, transport = scheme.partition("+")
    parts = [part.strip() for part in rest.split(",")]
    if not separator or dialect not in DIALECTS or not all(parts):
        raise ConfigError(
            f"{text!r} is not a broker's URL",
            hint=f"write mdp://127.0.0.1:5555 or mdp+ipc:///run/x.sock; dialects: {', '.join(DIALECTS)}",
        )
    if transport in ("", "tcp"):
        return Url(dialect, tuple(_tcp(part, DEFAULT_PORTS.get(dialect, DEFAULT_PORT)) for part in parts))
    if transport == "ipc":
        return Url(dialect, tuple(Address(endpoints.parse(f"ipc://{part}")) for part in parts))
    if transport == "local":
        return Url(dialect, tuple(Address(None, part) for part in parts))
    raise ConfigError(f"{text!r}: no transport {transport!r}", hint="use tcp, ipc or local")


def _tcp(part: str, port: int) -> Address:
    part = part.rstrip("/")
    has_port = ":" in part.rpartition("]")[2]
    return Address(endpoints.parse(f"tcp://{part}" if has_port else f"tcp://{part}:{port}"))
