"""Targets: which of a service's workers a job is for, as NFP writes it.

`all` (also an empty frame), `any`, names separated by commas, a JSON list of names (norfab), or one or more
`resource:NAME`. The service `all` stands for all services: `all` is every worker of each, `any` one of each.
"""

from __future__ import annotations

from typing import Final

import msgspec

from polydomo.core.names import parse_name
from polydomo.core.targets import ALL, EACH, NAMES, RESOURCES, Target
from polydomo.wire.frames import shown

RESOURCE: Final = b"resource:"

EVERY_SERVICE: Final = b"all"


def parse(target: bytes, service: bytes = b"", *, written: bool = False) -> Target | None:
    """Return the target; None stands for any worker. Raises ValueError with a message for the client. `written`: the
    names are in printable form (`core.names`), as in a JSON list."""
    everywhere = service == EVERY_SERVICE
    if target == b"any":
        return Target(EACH, None, False, True) if everywhere else None
    if target in (b"", b"all"):
        return Target(ALL, None, False, everywhere)
    names = _names(target)
    if not names:
        raise ValueError("the target has no worker name; write `all`, `any` or names")
    entities = [name[len(RESOURCE) :].strip() for name in names if name.startswith(RESOURCE)]
    if written or target[:1] == b"[":
        names = [parse_name(name.decode()) for name in names]
        entities = [parse_name(name.decode()) for name in entities]
    if not entities:
        return Target(NAMES, names, True, everywhere)
    if everywhere:
        raise ValueError("a resource belongs to one service, not to `all`")
    if len(entities) != len(names):
        raise ValueError("a target has names of workers or of resources, not both")
    if not all(entities):
        raise ValueError("a resource of the target has no name")
    return Target(RESOURCES, entities, True)


def names_in(target: bytes) -> list[bytes]:
    """Return the worker names in a target; none for `all`, `any` and resources."""
    try:
        found = parse(target)
    except ValueError:
        return []
    return found.names if found is not None and found.kind == NAMES else []


def _names(target: bytes) -> list[bytes]:
    if target[:1] != b"[":
        return [part.strip() for part in target.split(b",") if part.strip()]
    try:
        listed: object = msgspec.json.decode(target)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise ValueError(f"the target {shown(target)} is not a JSON list of names") from None
    names: list[bytes] = []
    if isinstance(listed, list):
        for name in listed:
            if not isinstance(name, str) or not name:
                raise ValueError(f"the target {shown(target)} has an element that is not a name")
            names.append(name.encode())
    return names
