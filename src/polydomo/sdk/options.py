"""What a caller may say about one job beside its body, in a dialect that has words for it. That is NFP; MemoDB can say
how long a worker may take for it.

Whom it is for goes into NFP's target frame, the rest into the body's member `options`; a body that is no JSON object
has no room for it. Our own workers' functions do not see that member.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypedDict
from uuid import uuid4

import msgspec

from polydomo.core.names import parse_name, printable
from polydomo.core.registry import RESERVED
from polydomo.core.targets import RESOURCES
from polydomo.dialects import targets
from polydomo.wire.frames import frame, split

ANY: Final = b"any"

# Targets with a meaning of their own; a worker that is called so can only be named in a JSON list.
_WORDS: Final = ("any", "all")
_RESOURCE: Final = "resource:"

# How the options are called on the wire, in the body's member `options`.
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
    """- `target`: "any" worker of the service (as usual), "all" of them, a worker's name, or a list of names.
    - `resource`: instead of a target: the worker that has this resource, or those that have these.
    - `id`: the job's UUID, if not one of the client's choice; the same again is the same job.
    - `priority`: -9 to 9; higher ones first.
    - `key`: idempotency key: of all jobs with the same key one is run, and everybody gets its answer.
    - `delay`: seconds before it may be run.
    - `deadline`: seconds after which nobody wants it any more, run or not.
    - `queue_timeout`: seconds it may wait for a worker.
    - `run_timeout`: seconds one worker may take for it (MemoDB, too; there it is the call's `timeout` unless given).
    - `durable`: keep it on the broker's disk, also where its service is not durable.
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


class Prepared(NamedTuple):
    """A job as it will be sent."""

    uid: str
    target: bytes
    body: bytes  # canonical (wire.frames)
    run_limit: float | None = None  # MemoDB: seconds that a worker may take


def prepare(dialect: str, options: JobOptions, body: bytes) -> Prepared:
    """Check the options and put each where it belongs."""
    unknown = options.keys() - JobOptions.__annotations__.keys()
    if unknown:
        known = ", ".join(JobOptions.__annotations__)
        raise TypeError(f"a call has no {', '.join(sorted(unknown))}=; there are {known}")
    given = {name: value for name, value in options.items() if value is not None}
    if dialect != "nfp":
        run_limit: Any = given.pop("run_timeout", None) if dialect == "memo" else None
        if given:
            named = ", ".join(f"{name}=" for name in given)
            raise ValueError(f"{named}: {dialect} has no words for it; use an nfp:// URL")
        return Prepared("", b"", body, run_limit)
    uid = str(given.pop("id", "") or uuid4())
    target = target_frame(given.pop("target", None), given.pop("resource", None))
    return Prepared(uid, target, _with_members(body, given))


def target_frame(target: Any, resource: Any) -> bytes:
    """NFP's target frame."""
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
    if isinstance(target, str) and target in _WORDS:
        return target.encode()
    names = _names(target, "target")
    if any(
        "," in name or name[0] in '["' or name in _WORDS or name.startswith(_RESOURCE) or _is_hex(name)
        for name in names
    ):
        return msgspec.json.encode(names)
    return ",".join(names).encode()


def is_single(service: bytes, target: bytes) -> bool:
    """Does one worker's own answer come back, rather than one of each? The broker's own services always answer for
    themselves."""
    if service.startswith(RESERVED):
        return True
    found = targets.parse(target, service)
    return found is None or found.single


def first_name(target: bytes) -> str:
    """Who was asked, where it is one: a worker, or `resource:NAME`."""
    found = targets.parse(target)
    if found is None or not found.names:
        return ""
    name = printable(found.names[0])
    return f"{_RESOURCE}{name}" if found.kind == RESOURCES else name


def _is_hex(name: str) -> bool:
    """Does a name stand for bytes that are no text (`core.names`)? A JSON list says so."""
    return parse_name(name) != name.encode()


def _names(given: Any, what: str) -> list[str]:
    names = [given] if isinstance(given, str) else list(given)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"{what}={given!r}: give a name or a list of names")
    return names


def _with_members(body: bytes, given: dict[str, Any]) -> bytes:
    if not given:
        return body
    frames = split(body)
    try:
        if len(frames) != 1:
            raise TypeError
        value: dict[str, msgspec.Raw] = msgspec.json.decode(frames[0], type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, TypeError):
        named = ", ".join(f"{name}=" for name in given)
        raise ValueError(
            f"{named}: NFP puts it into the body, which must be a JSON object (a dict) for that"
        ) from None
    members: dict[str, Any] = dict(value)
    if "options" in members:
        raise ValueError("the body has a member options of its own: say it all there, or all here")
    members["options"] = {_MEMBERS[name]: value for name, value in given.items()}
    return frame(msgspec.json.encode(members))


def without_options(body: bytes) -> bytes:
    """The body as a service's function gets it: what was said to the broker is left out."""
    if b'"options"' not in body:
        return body
    frames = split(body)
    if len(frames) != 1 or frames[0][:1] != b"{":
        return body
    try:
        members: dict[str, msgspec.Raw] = msgspec.json.decode(frames[0], type=dict[str, msgspec.Raw])
        said = msgspec.json.decode(members.get("options", b"null"))
    except msgspec.DecodeError:
        return body
    if not isinstance(said, dict) or not said.keys() <= set(_MEMBERS.values()):
        return body
    del members["options"]
    return frame(msgspec.json.encode(members))
