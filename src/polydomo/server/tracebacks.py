"""Which clients may see where in a worker's code a job failed: `broker.tracebacks`.

A traceback names files, versions and sometimes data of the worker's machine. Our own SDK's workers send it along with
the error; the broker takes it out of the failure before any client, record or gathered answer has it, unless it is
allowed. "loopback" allows it while nobody but this machine can connect: all of the broker's listeners are on loopback
addresses or Unix sockets, and so are the brokers that it has joined.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec

from polydomo.core.job import Failure
from polydomo.server import endpoints
from polydomo.server.settings import Settings
from polydomo.wire.frames import join, split

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def filter_for(settings: Settings) -> Callable[[Failure], None] | None:
    """Return what removes the traceback from a failure; None if it may stay."""
    allowed = settings.broker.tracebacks
    if allowed == "always" or (allowed == "loopback" and _stays_here(settings)):
        return None
    return remove_traceback


def remove_traceback(failure: Failure) -> None:
    """Take the traceback out of a failure: of the account, and of a body that is one."""
    failure.detail = _without(failure.detail)
    if failure.body:
        frames = split(failure.body)
        cleaned = [_without(frame) for frame in frames]
        if cleaned != frames:
            failure.body = join(cleaned)


def _without(account: bytes) -> bytes:
    if account[:1] != b"{":
        return account
    try:
        members = _MEMBERS.decode(account)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return account
    if members.pop("traceback", None) is None:
        return account
    return msgspec.json.encode(members)


def _stays_here(settings: Settings) -> bool:
    broker = settings.broker
    places = [endpoints.parse(text, binding=True) for text in [*broker.zmq, *broker.nng, *broker.events]]
    places += [endpoints.parse_address(text) for text in broker.http]
    above = [urlsplit(place) for url in settings.join.up for place in _urls(url)]
    return all(place.is_ipc or is_loopback(place.host) for place in places) and all(
        place.scheme.endswith(("+ipc", "+local")) or is_loopback(place.hostname or "") for place in above
    )


def _urls(url: str) -> list[str]:
    """One for each of the brokers that a URL names."""
    scheme, _, places = url.partition("://")
    return [f"{scheme}://{place.strip()}" for place in places.split(",")]


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the host; empty: all of its addresses."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
