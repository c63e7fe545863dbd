"""Encoding of a durable job's target and options in its record."""

from __future__ import annotations

import msgspec

from polydomo.core.targets import KINDS, Assignment, Target
from polydomo.core.tracked_job import Options, TrackedJob
from polydomo.store.records import JobRecord

_KIND = {word: kind for kind, word in KINDS.items()}


class _Target(msgspec.Struct, omit_defaults=True):
    kind: str
    names: list[str] = []
    single: bool = False
    everywhere: bool = False


class _Rest(msgspec.Struct, omit_defaults=True):
    named: bool = False  # the client chose the job's id
    timeout: float = 0.0
    wait: float = -1.0
    places: list[tuple[str, str, str]] = []  # service, worker, resource
    form: str = ""  # of the client's dialect


_read_target = msgspec.json.Decoder(_Target)
_read_rest = msgspec.json.Decoder(_Rest)
_plain: dict[bytes, Options] = {}


def written_target(target: Target | None) -> str:
    """Return a target as text: `any`, or JSON."""
    if target is None:
        return "any"
    names = [as_text(name) for name in target.names]
    return msgspec.json.encode(_Target(KINDS[target.kind], names, target.single, target.everywhere)).decode()


def read_target(text: str) -> Target | None:
    """Return the target that `written_target` encoded."""
    if text == "any":
        return None
    found = _read_target.decode(text)
    names = [as_bytes(name) for name in found.names]
    return Target(_KIND[found.kind], names, found.single, found.everywhere)


def several(record: JobRecord) -> bool:
    """Return whether the job's result is gathered from several workers."""
    return record.target != "any" and not _read_target.decode(record.target).single


def rest_of(tracked: TrackedJob, form: str) -> bytes:
    """Return the options that have no column of their own, with the form of the client's dialect."""
    if not (tracked.user_named or tracked.timeout or tracked.assignments or form) and tracked.own_wait < 0:
        return b""
    places = [
        (as_text(place.service), as_text(place.worker), as_text(place.resource))
        for place in tracked.assignments
    ]
    return msgspec.json.encode(_Rest(tracked.user_named, tracked.timeout, tracked.own_wait, places, form))


def form_of(record: JobRecord) -> str:
    """Return the form of the dialect in which the client is answered."""
    return _read_rest.decode(record.options).form if b'"form"' in record.options else ""


def read_options(record: JobRecord) -> tuple[Options, list[Assignment]]:
    """Return a job's options and the assignments of its parts. Jobs with equal options share one object."""
    plain = record.target == "any" and record.key is None and not record.priority
    if plain and record.options in _plain:
        return _plain[record.options], []
    rest = _read_rest.decode(record.options or b"{}")
    options = Options(uid=record.id if rest.named else "", timeout=rest.timeout, wait=rest.wait)
    options.key = b"" if record.key is None else record.key.encode("latin-1", "replace")
    options.target = read_target(record.target)
    options.priority = record.priority
    if plain and not rest.places and len(_plain) < 1000:
        _plain[record.options] = options
    return options, [
        Assignment(as_bytes(one), as_bytes(two), as_bytes(three)) for one, two, three in rest.places
    ]


def as_text(name: bytes) -> str:
    """Return a name or key as text for the store. Latin-1 maps all bytes to text and back."""
    return name.decode("latin-1")


def as_bytes(text: str) -> bytes:
    """Return the name or key that `as_text` converted."""
    return text.encode("latin-1")
