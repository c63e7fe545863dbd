"""Names, resources and failures in NFP workers' messages."""

from __future__ import annotations

from typing import Final

import msgspec

from polydomo.core.failure import WORKER_ERROR, Failure
from polydomo.core.services import SERVICE_NAME_MAX
from polydomo.dialects.nfp import json_bodies
from polydomo.wire.frames import EMPTY_BODY, Message

_RESERVED_NAMES: Final = (b"all", b"any")


def is_valid_name(name: bytes) -> bool:
    """Return whether a worker or a resource may have this name, which must not mean anything else in a target."""
    return (
        0 < len(name) <= SERVICE_NAME_MAX
        and name not in _RESERVED_NAMES
        and b"," not in name
        and not name.startswith((b"[", b"resource:"))
        and name.decode("utf-8", "replace").isprintable()
        and name == name.strip()
    )


def resource_names(value: object) -> list[bytes]:
    """Return the names in a JSON list of resources. Raises ValueError."""
    if not isinstance(value, list):
        raise ValueError("resources must be a list of names")
    names: list[bytes] = []
    for name in value:
        if not isinstance(name, str) or not is_valid_name(name.encode()):
            raise ValueError(f"{name!r} is not a valid resource name")
        names.append(name.encode())
    return names


def resources_in(body: bytes) -> object:
    """Return the list in `{"task": "set_resources", "kwargs": {"resources": […]}}`. Raises ValueError."""
    try:
        task: object = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise ValueError("the task is not JSON") from None
    kwargs: object = task.get("kwargs") if isinstance(task, dict) else None
    if not isinstance(task, dict) or task.get("task") != "set_resources" or not isinstance(kwargs, dict):
        raise ValueError("the task must be set_resources, with resources")
    return kwargs.get("resources")


def failure_from(status: bytes, body: bytes) -> Failure:
    """Return the failure in a worker's RESPONSE of 400 or more. The first frame may be our SDK's failure detail
    (`{"message": …}`); the frames after it are for clients whose protocol has no failures."""
    message = Message(body, 0, len(body))
    first = message.take() or b""
    members = json_bodies.object_in(first) if first[:1] == b"{" else None
    if members is not None and "message" in members:
        said = json_bodies.member(members, "message")
        text = said if isinstance(said, str) else "the worker failed the job"
        detail = first
        if "status" not in members:
            detail = msgspec.json.encode(members | {"status": msgspec.Raw(status)})
        return Failure(WORKER_ERROR, text, message.rest() or body, detail)
    text = f"the worker answered {status.decode()}"
    if first:
        text += ": " + first[:1000].decode("utf-8", "replace")
    return Failure(WORKER_ERROR, text, body or EMPTY_BODY, json_bodies.failure_detail(status, text))
