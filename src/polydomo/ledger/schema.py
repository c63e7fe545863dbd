"""The ledger's tables: every column with its type and description. The reference documentation is made from them.

A segment is one Parquet file of one table, in a folder with the table's name. It appears complete: it is written under
a name that begins with a dot, then renamed. Readers must accept unknown columns, and must not rely on columns that an
older broker did not have: a new column is always nullable.

Text from peers (names of clients, workers, services) is unchanged if it is printable UTF-8; other bytes are written as
`0x` and hexadecimal digits.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, get_args

Kind = Literal["string", "int32", "int64", "bool", "timestamp"]

# Version in each segment's metadata, increased with every change that matters to readers.
VERSION: Final = 1

# Keys of a segment's metadata.
META_VERSION: Final = b"polydomo.ledger"
META_TABLE: Final = b"polydomo.table"
META_BROKER: Final = b"polydomo.broker"
META_RUN: Final = b"polydomo.run"

# Outcomes of a job.
DONE: Final = "done"  # there is a result
FAILED: Final = "failed"  # there is an error instead
CANCELLED: Final = "cancelled"  # the result was no longer wanted
DEAD: Final = "dead"  # a durable job whose attempts were all lost: a dead letter
REFUSED: Final = "refused"  # it was never accepted
OUTCOMES: Final = (DONE, FAILED, CANCELLED, DEAD, REFUSED)


class LedgerColumn(NamedTuple):
    """Column of a table. Timestamps are microseconds in UTC."""

    name: str
    kind: Kind
    nullable: bool
    doc: str


class LedgerTable(NamedTuple):
    """Table of the ledger. Two rows with equal `key` columns are duplicates."""

    name: str
    doc: str
    key: tuple[str, ...]
    columns: tuple[LedgerColumn, ...]

    def column(self, name: str) -> LedgerColumn:
        """Return the column with this name."""
        return next(column for column in self.columns if column.name == name)


def _columns(*rows: tuple[str, str]) -> tuple[LedgerColumn, ...]:
    """Return columns from ("name kind", "doc"); a kind that ends in `?` is nullable."""
    kinds: dict[str, Kind] = {kind: kind for kind in get_args(Kind)}
    found = []
    for head, doc in rows:
        name, kind = head.split()
        found.append(LedgerColumn(name, kinds[kind.removesuffix("?")], kind.endswith("?"), doc))
    return tuple(found)


JOBS: Final = LedgerTable(
    "jobs",
    "One row per ended job, except requests to the broker's own services. A dead letter that was sent again has a row "
    "for each end.",
    ("job_id", "finished"),
    _columns(
        ("job_id string", "id of the job; without an id of its own, the broker's run and a number"),
        ("parent string?", "id of the whole job, if this is the part of one of several workers"),
        ("part int32?", "index of the part"),
        ("key string?", "idempotency key"),
        ("service string", "service that the job was for; the last one if it was forwarded"),
        ("asked string", "service that the client named"),
        ("dialect_in string", "protocol of the client"),
        ("dialect_out string?", "protocol of the worker"),
        ("client string", "name or identity of the client"),
        ("principal string?", "authenticated identity of the client"),
        ("worker string?", "worker that answered or failed the job; null if the latest attempt was lost"),
        ("broker string", "name of the broker"),
        ("run string", "id of the broker's run, from start to stop"),
        ("target string", "requested workers: any, all, or names"),
        ("submitted timestamp", "time of arrival"),
        ("queued timestamp?", "when the job could first be dispatched: on disk, and after its delay"),
        ("dispatched timestamp?", "start of the latest attempt"),
        ("first_partial timestamp?", "time of the first of several answers"),
        ("finished timestamp", "end of the job"),
        ("outcome string", f"one of {', '.join(OUTCOMES)}"),
        ("error string?", "code of the failure"),
        ("attempts int32", "number of dispatches to a worker"),
        ("partials int32?", "number of answers before the last"),
        ("bytes_in int64", "size of the request"),
        ("bytes_out int64", "size of all answers"),
        ("durable bool", "whether the store has a record of the job; such a job is never missing here"),
        ("memo_hit bool", "whether the answer was memoised, or shared with an equal request"),
        ("repeat bool", "whether the job was submitted before under the same id or key"),
        ("priority int32", "-9 to 9"),
        ("deadline timestamp?", "time by which the job had to end"),
        ("waited_us int64?", "time from queued to the first dispatch, by a monotonic clock"),
        ("ran_us int64?", "duration of the latest attempt, by a monotonic clock"),
        ("took_us int64?", "time from submitted to finished, by a monotonic clock"),
        (
            "rebuilt bool",
            "whether the row was rebuilt from the store after a crash; more columns are null then",
        ),
    ),
)

ATTEMPTS: Final = LedgerTable(
    "attempts",
    "One row per attempt that did not end its job: lost, or revoked. The last attempt is in the job's own row.",
    ("job_id", "number", "dispatched"),
    _columns(
        ("job_id string", "the job"),
        ("number int32", "1 for the first attempt"),
        ("service string", "the service"),
        ("worker string", "the worker"),
        ("dialect_out string?", "protocol of the worker"),
        ("broker string", "name of the broker"),
        ("run string", "id of the broker's run"),
        ("dispatched timestamp", "start of the attempt"),
        ("ended timestamp", "end of the attempt"),
        (
            "outcome string",
            "worker-lost, overrun, disowned (after a restart), called-back (cancelled) or superseded",
        ),
        ("ran_us int64?", "duration of the attempt, by a monotonic clock"),
        ("rebuilt bool", "whether the row was rebuilt from the store after a crash"),
    ),
)

EVENTS: Final = LedgerTable(
    "events",
    "One row per lifecycle event of a peer or of the broker.",
    ("event_id",),
    _columns(
        ("event_id string", "the broker's run and a number"),
        ("at timestamp", "time of the event"),
        ("kind string", "joined, left, expired, denied, started, stopped"),
        ("role string", "worker, client, peer or broker"),
        ("peer string?", "name, identity or address of the peer"),
        ("service string?", "services of a worker, separated by commas"),
        ("dialect string?", "protocol of the peer"),
        ("reason string?", "reason as text"),
        ("broker string", "name of the broker"),
        ("run string", "id of the broker's run"),
    ),
)

TABLES: Final = (JOBS, ATTEMPTS, EVENTS)
