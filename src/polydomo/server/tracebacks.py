"""Removal of workers' tracebacks from failures, as `broker.tracebacks` says.

A traceback names files, versions and sometimes data of the worker's machine. The SDK's workers send it with the error;
the broker removes it before the failure reaches a client, a record or a gathered answer, unless it is allowed.
"loopback" allows it while only this machine can connect: all of the broker's listeners, and the brokers that it has
joined, are on loopback addresses or Unix sockets.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec

from polydomo.core.failure import Failure
from polydomo.server.exposure import is_local, is_loopback, listeners
from polydomo.server.settings import Settings
from polydomo.wire.frames import join, split

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def filter_for(settings: Settings) -> Callable[[Failure], None] | None:
    """Return the function that removes the traceback from a failure; None if tracebacks are allowed."""
    allowed = settings.broker.tracebacks
    if allowed == "always" or (allowed == "loopback" and _is_local(settings)):
        return None
    return remove_traceback


def remove_traceback(failure: Failure) -> None:
    """Remove the traceback from the failure's detail, and from a body in the same form."""
    failure.detail = _without(failure.detail)
    if failure.body:
        frames = split(failure.body)
        cleaned = [_without(frame) for frame in frames]
        if cleaned != frames:
            failure.body = join(cleaned)


def _without(detail: bytes) -> bytes:
    if detail[:1] != b"{":
        return detail
    try:
        members = _MEMBERS.decode(detail)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return detail
    if members.pop("traceback", None) is None:
        return detail
    return msgspec.json.encode(members)


def _is_local(settings: Settings) -> bool:
    joined = [urlsplit(one) for url in settings.join.up for one in _urls(url)]
    return all(is_local(listener.endpoint) for _, _, listener in listeners(settings.broker)) and all(
        url.scheme.endswith(("+ipc", "+local")) or is_loopback(url.hostname or "") for url in joined
    )


def _urls(url: str) -> list[str]:
    """Return a URL for each of the brokers that a URL names."""
    scheme, _, hosts = url.partition("://")
    return [f"{scheme}://{host.strip()}" for host in hosts.split(",")]
