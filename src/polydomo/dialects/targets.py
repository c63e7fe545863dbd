"""NFP's target frame: whom of a service's workers a job is for.

`all` (also an empty frame), `any`, names separated by commas, a JSON list of names (norfab's way), and
`resource:NAME`, also several of them. The service `all` stands for all services: `all` is every worker of each, `any`
one of each.
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
    """None: any worker will do. Raises ValueError with a text for whoever sent it. `written`: the names are as people
    write them (`core.names`), as they are in a JSON list."""
    everywhere = service == EVERY_SERVICE
    if target == b"any":
        return Target(EACH, None, False, True) if everywhere else None
    if target in (b"", b"all"):
        return Target(ALL, None, False, everywhere)
    names = _names(target)
    if not names:
        raise ValueError("the target names no worker; give `all`, `any` or names")
    entities = [name[len(RESOURCE) :].strip() for name in names if name.startswith(RESOURCE)]
    if written or target[:1] == b"[":
        names = [parse_name(name.decode()) for name in names]
        entities = [parse_name(name.decode()) for name in entities]
    if not entities:
        return Target(NAMES, names, True, everywhere)
    if everywhere:
        raise ValueError("a resource belongs to a service; `all` is none")
    if len(entities) != len(names):
        raise ValueError("a target names workers or resources, not both")
    if not all(entities):
        raise ValueError("a resource of the target has no name")
    return Target(RESOURCES, entities, True)


def names_in(target: bytes) -> list[bytes]:
    """The workers a target names; none for `all`, `any` and resources."""
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
        raise ValueError(f"the target {shown(target)} is no JSON list of names") from None
    names: list[bytes] = []
    if isinstance(listed, list):
        for name in listed:
            if not isinstance(name, str) or not name:
                raise ValueError(f"the target {shown(target)} has something in it that is no name")
            names.append(name.encode())
    return names
