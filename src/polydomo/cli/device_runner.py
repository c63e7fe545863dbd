"""The run of a WMP device in this process."""

from __future__ import annotations

import structlog

from polydomo import __version__, web
from polydomo.cli import broker_runner
from polydomo.errors import ConfigError
from polydomo.federation import device
from polydomo.sdk.url import Address, Url, parse
from polydomo.server import serve
from polydomo.server.config import Flag
from polydomo.server.server import BrokerServer

logger = structlog.get_logger("polydomo")


def run(flags: list[Flag], up: list[str], name: str) -> None:
    """Run a device until it is stopped."""
    url = managers(up)
    settings = broker_runner.prepare(flags, None)
    settings.broker.data = ""
    settings.join.up = []
    own = name.encode() or device.make_name()
    if own.startswith(b"\0") or len(own) > 255:
        raise ConfigError("a device's name has 1 to 255 bytes, and does not begin with a zero byte", hint="")
    joiners = (device.joiner(url, own), web.join)

    def announce(server: BrokerServer) -> None:
        logger.info(f"polydomo {__version__} device", name=own.decode())
        broker_runner.log_endpoints(server)

    serve.run(serve.serve(settings, started=announce, extensions=joiners))


def managers(urls: list[str]) -> Url:
    """Return the managers' URLs as one URL."""
    places: list[Address] = []
    for text in urls:
        url = parse(text)
        if url.dialect != "wmp":
            raise ConfigError(f"{text!r}: a device speaks WMP only", hint="write wmp://HOST:PORT")
        places += url.addresses
    return Url("wmp", tuple(dict.fromkeys(places)))
