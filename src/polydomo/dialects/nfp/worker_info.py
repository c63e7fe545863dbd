"""What workers say about themselves: their names and resources, and why a job failed."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from polydomo.core.job import WORKER_ERROR, Failure
from polydomo.core.registry import SERVICE_NAME_MAX
from polydomo.dialects.nfp import json_bodies
from polydomo.wire.frames import EMPTY_BODY, Message

# What a worker may be called in OPEN must not mean anything else in a target.
_TAKEN_NAMES: Final = (b"all", b"any")


def good_name(name: bytes) -> bool:
    """May a worker or a resource be called this? It must not mean something else in a target."""
    return (
        0 < len(name) <= SERVICE_NAME_MAX
        and name not in _TAKEN_NAMES
        and b"," not in name
        and not name.startswith((b"[", b"resource:"))
        and name.decode("utf-8", "replace").isprintable()
        and name == name.strip()
    )


def names_of(value: object) -> list[bytes]:
    """A JSON list of resources. Raises ValueError."""
    if not isinstance(value, list):
        raise ValueError("resources are no list of names")
    names: list[bytes] = []
    for name in value:
        if not isinstance(name, str) or not good_name(name.encode()):
            raise ValueError(f"{name!r} is no name for a resource")
        names.append(name.encode())
    return names


def resources_in(body: bytes) -> object:
    """The list in `{"task": "set_resources", "kwargs": {"resources": […]}}`. Raises ValueError."""
    try:
        said: object = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise ValueError("no JSON") from None
    kwargs: object = said.get("kwargs") if isinstance(said, dict) else None
    if not isinstance(said, dict) or said.get("task") != "set_resources" or not isinstance(kwargs, dict):
        raise ValueError("a worker's own task is set_resources, with resources")
    return kwargs.get("resources")


def failure_from(status: bytes, body: bytes) -> Failure:
    """A worker's RESPONSE of 400 or more. Its first frame may be an account of ours (`{"message": …}`); frames behind
    it are for clients whose protocol has no word for failure."""
    message = Message(body, 0, len(body))
    first = message.take() or b""
    members = json_bodies.object_in(first) if first[:1] == b"{" else None
    if members is not None and "message" in members:
        said = json_bodies.member(members, "message")
        text = said if isinstance(said, str) else "the worker failed the job"
        return Failure(WORKER_ERROR, text, message.rest() or body, with_status(status, first, members))
    text = f"the worker answered {status.decode()}"
    if first:
        text += ": " + first[:1000].decode("utf-8", "replace")
    return Failure(WORKER_ERROR, text, body or EMPTY_BODY, json_bodies.account(status, text))


def with_status(status: bytes, account: bytes, members: dict[str, Any]) -> bytes:
    """Return the account, whose members these are, with the status it came with, unless it says so itself."""
    return account if "status" in members else msgspec.json.encode(members | {"status": msgspec.Raw(status)})
