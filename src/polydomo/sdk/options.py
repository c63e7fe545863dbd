"""Options of one job, for dialects that can transmit them: NFP has all of them, MemoDB only `run_timeout`.

The target goes into NFP's target frame, all other options into the body's member `options`, so the body must be a JSON
object. Polydomo's workers remove that member before they call a service's function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypedDict
from uuid import uuid4

import msgspec

from polydomo.core.names import parse_name, printable
from polydomo.core.services import RESERVED
from polydomo.core.targets import RESOURCES
from polydomo.dialects import targets
from polydomo.wire.frames import frame, split

ANY: Final = b"any"

# Reserved targets; a worker of that name can only be named in a JSON list.
_RESERVED_TARGETS: Final = ("any", "all")
_RESOURCE: Final = "resource:"

# Names of the options on the wire, in the body's member `options`.
_MEMBERS: Final = {
    "priority": "priority",
    "key": "key",
    "delay": "delay",
    "deadline": "deadline",
    "queue_timeout": "wait",
    "run_timeout": "timeout",
    "durable": "durable",
}


class JobOptions(TypedDict, total=False):
    """- `target`: "any" worker of the service (default), "all" of them, a worker's name, or a list of names.
    - `resource`: instead of a target: the name of a resource, or several; the job goes to the workers that have them.
    - `id`: the job's UUID (default: a random one). A second request with the same UUID is the same job.
    - `priority`: -9 to 9; higher ones first.
    - `key`: idempotency key: of all jobs with the same key one is run, and all clients get its result.
    - `delay`: seconds before the job may be run.
    - `deadline`: seconds after which the job is dropped, whether it is running or not.
    - `queue_timeout`: seconds that the job may wait for a worker.
    - `run_timeout`: seconds that one worker may take (also on MemoDB, where the default is the call's `timeout`).
    - `durable`: keep the job on the broker's disk even if its service is not durable.
    """

    target: str | Sequence[str]
    resource: str | Sequence[str]
    id: str
    priority: int
    key: str
    delay: float
    deadline: float
    queue_timeout: float
    run_timeout: float
    durable: bool


class PreparedJob(NamedTuple):
    """A job ready to be sent."""

    uid: str
    target: bytes
    body: bytes  # canonical (wire.frames)
    run_timeout: float | None = None  # MemoDB only


def prepare(dialect: str, options: JobOptions, body: bytes) -> PreparedJob:
    """Validate the options and encode them in the target and the body."""
    unknown = options.keys() - JobOptions.__annotations__.keys()
    if unknown:
        known = ", ".join(JobOptions.__annotations__)
        raise TypeError(f"unknown option {', '.join(sorted(unknown))}; use {known}")
    given = {name: value for name, value in options.items() if value is not None}
    if dialect != "nfp":
        run_timeout: Any = given.pop("run_timeout", None) if dialect == "memo" else None
        if given:
            named = ", ".join(f"{name}=" for name in given)
            raise ValueError(f"{named}: not supported by {dialect}; use an nfp:// URL")
        return PreparedJob("", b"", body, run_timeout)
    uid = str(given.pop("id", "") or uuid4())
    target = target_frame(given.pop("target", None), given.pop("resource", None))
    return PreparedJob(uid, target, _with_members(body, given))


def target_frame(target: Any, resource: Any) -> bytes:
    """Encode a target or a resource as NFP's target frame."""
    if target is not None and resource is not None:
        raise ValueError("give a target= or a resource=, not both")
    if resource is not None:
        names = _names(resource, "resource")
        if any("," in name for name in names):
            raise ValueError("a resource's name may have no comma in it")
        entities = [f"{_RESOURCE}{name}" for name in names]
        return msgspec.json.encode(entities) if any(map(_is_hex, names)) else ",".join(entities).encode()
    if target is None:
        return ANY
    if isinstance(target, str) and target in _RESERVED_TARGETS:
        return target.encode()
    names = _names(target, "target")
    if any(
        "," in name
        or name[0] in '["'
        or name in _RESERVED_TARGETS
        or name.startswith(_RESOURCE)
        or _is_hex(name)
        for name in names
    ):
        return msgspec.json.encode(names)
    return ",".join(names).encode()


def is_single(service: bytes, target: bytes) -> bool:
    """Return whether the result is one worker's own, not gathered from several. The broker's own services always
    return a single result."""
    if service.startswith(RESERVED):
        return True
    found = targets.parse(target, service)
    return found is None or found.single


def first_name(target: bytes) -> str:
    """Return the first name of a target: a worker's, or `resource:NAME`."""
    found = targets.parse(target)
    if found is None or not found.names:
        return ""
    name = printable(found.names[0])
    return f"{_RESOURCE}{name}" if found.kind == RESOURCES else name


def _is_hex(name: str) -> bool:
    """Return whether a name stands for bytes that are no text (`core.names`); such names need a JSON list."""
    return parse_name(name) != name.encode()


def _names(given: Any, what: str) -> list[str]:
    names = [given] if isinstance(given, str) else list(given)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"{what}={given!r}: give a name or a list of names")
    return names


def _with_members(body: bytes, given: dict[str, Any]) -> bytes:
    if not given:
        return body
    members = _members(body)
    if members is None:
        named = ", ".join(f"{name}=" for name in given)
        raise ValueError(
            f"{named}: NFP puts options into the body, which must be a JSON object (a dict) for that"
        )
    if "options" in members:
        raise ValueError("the body has a member options of its own: give all options there, or all here")
    options = {_MEMBERS[name]: value for name, value in given.items()}
    return frame(msgspec.json.encode({**members, "options": options}))


def without_options(body: bytes) -> bytes:
    """Return the body without the broker's options, as a service's function gets it."""
    if b'"options"' not in body:
        return body
    members = _members(body) or {}
    try:
        options = msgspec.json.decode(members.get("options", b"null"))
    except msgspec.DecodeError:
        return body
    if not isinstance(options, dict) or not options.keys() <= set(_MEMBERS.values()):
        return body
    del members["options"]
    return frame(msgspec.json.encode(members))


def _members(body: bytes) -> dict[str, msgspec.Raw] | None:
    """Return the members of a body that is one JSON object; None for any other body."""
    frames = split(body)
    try:
        return msgspec.json.decode(frames[0], type=dict[str, msgspec.Raw]) if len(frames) == 1 else None
    except msgspec.DecodeError:
        return None
