"""Records of the audit log: one line of JSON each, chained by their hashes.

    {"number":7,"at":"2026-01-31T12:00:00.000000Z","kind":"act","principal":"ann",…,"previous":"9f…","hash":"1c…"}

`hash` is the last field: SHA-256 of the line's bytes before it. `previous` is the hash of the record before, so no
record can be changed, removed or moved without a break in the chain. A hash is over bytes, not over values: a record
is checked without being encoded again.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Final

import msgspec

from polydomo.redaction import redact
from polydomo.safe_text import safe_line

# Kinds of records.
ACT: Final = "act"  # an administrative act, recorded before it is done
DENIED: Final = "denied"  # something that a principal was not allowed to do, or a peer that was not let in
EVENT: Final = "event"  # of the broker or of the log itself
KINDS: Final = (ACT, DENIED, EVENT)

# The hash before the first record.
NOTHING: Final = "0" * 64

# Longest text of a field in characters: names and reasons come from peers.
LONGEST: Final = 300

_HASH: Final = b',"hash":"'
_END: Final = b'"}\n'


class AuditEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An act, denial or event to be recorded. Empty fields do not apply."""

    kind: str
    principal: str = ""  # who
    verb: str = ""  # of `core.principals`
    action: str = ""  # task, route or event
    target: str = ""  # service, job, worker or key concerned
    address: str = ""  # of the peer
    reason: str = ""  # of a denial or an event
    count: int = 0  # equal denials that this record stands for; 0: one

    def cleaned(self) -> AuditEntry:
        """Return the entry with secrets masked and texts in one line, truncated."""
        fields = msgspec.structs.asdict(self)
        texts = {name: _clean(value) for name, value in fields.items() if isinstance(value, str)}
        return AuditEntry(**{**fields, **texts})


class AuditRecord(AuditEntry, frozen=True, omit_defaults=True, kw_only=True):
    """An entry in the log."""

    number: int
    at: str  # time in UTC
    previous: str
    hash: str = ""


class BrokenRecord(ValueError):
    """A line is no record, or its hash is not that of its text."""


def encode_line(entry: AuditEntry, number: int, at: float, previous: str) -> tuple[bytes, str]:
    """Return the line of a record and its hash. `at`: seconds since 1970."""
    fields = {
        "number": number,
        "at": datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        **msgspec.to_builtins(entry),
        "previous": previous,
    }
    head = msgspec.json.encode(fields)[:-1]
    digest = hashlib.sha256(head).hexdigest()
    return head + _HASH + digest.encode() + _END, digest


def decode_line(line: bytes) -> AuditRecord:
    """Return the record in a line; raise BrokenRecord if it was changed."""
    head, found, tail = line.rpartition(_HASH)
    if not found or tail[64:] != _END:
        raise BrokenRecord("not a record")
    if hashlib.sha256(head).hexdigest().encode() != tail[:64]:
        raise BrokenRecord("was changed: its hash is another")
    try:
        return msgspec.json.decode(line, type=AuditRecord)
    except msgspec.DecodeError as error:
        raise BrokenRecord("not a record") from error


def _clean(text: str) -> str:
    return safe_line(redact(text), LONGEST)
