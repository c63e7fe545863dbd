"""The ledger's tables: every column with its type and its sentence. The reference is made from these.

A segment is one Parquet file of one table, in a folder of the table's name. It appears whole: written under a name
with a dot in front, then renamed. Readers must expect columns that they do not know, and must not expect columns that
an older broker did not have: a new column is always nullable.

Text that comes from peers (names of clients, workers, services) is theirs as far as it is printable UTF-8; other bytes
are written as `0x` and hexadecimal digits.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Kind = Literal["string", "int32", "int64", "bool", "timestamp"]

# Raised with every change that a reader might care about; stands in each segment's metadata.
VERSION: Final = 1

# Keys of a segment's metadata.
META_VERSION: Final = b"polydomo.ledger"
META_TABLE: Final = b"polydomo.table"
META_BROKER: Final = b"polydomo.broker"
META_RUN: Final = b"polydomo.run"

# How a job can end.
DONE: Final = "done"  # there is a result
FAILED: Final = "failed"  # there is an error instead
CANCELLED: Final = "cancelled"  # nobody wanted it any more
DEAD: Final = "dead"  # a durable job whose attempts were all lost: a dead letter
REFUSED: Final = "refused"  # it was never accepted
OUTCOMES: Final = (DONE, FAILED, CANCELLED, DEAD, REFUSED)


class Column(NamedTuple):
    """Timestamps are microseconds in UTC."""

    name: str
    kind: Kind
    nullable: bool
    doc: str


class Table(NamedTuple):
    """`key`: two rows that agree in these columns are the same row, written twice."""

    name: str
    doc: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column:
        """By its name."""
        return next(column for column in self.columns if column.name == name)


def _columns(*rows: tuple[str, str]) -> tuple[Column, ...]:
    """From ("name kind", "doc"); a kind that ends in `?` may be null."""
    kinds: dict[str, Kind] = {
        "string": "string",
        "int32": "int32",
        "int64": "int64",
        "bool": "bool",
        "timestamp": "timestamp",
    }
    found = []
    for head, doc in rows:
        name, kind = head.split()
        found.append(Column(name, kinds[kind.removesuffix("?")], kind.endswith("?"), doc))
    return tuple(found)


JOBS: Final = Table(
    "jobs",
    "One row per job that ended, but for questions to the broker itself. A dead letter that was sent again has a row "
    "for each end.",
    ("job_id", "finished"),
    _columns(
        ("job_id string", "its id; for jobs that have none of their own, the broker's run and a number"),
        ("parent string?", "the id of the job that it is a part of, if that was for several workers"),
        ("part int32?", "which part of it"),
        ("key string?", "its idempotency key"),
        ("service string", "who did it, or should have; the last one if it was passed on"),
        ("asked string", "the service that its client named"),
        ("dialect_in string", "its client's protocol"),
        ("dialect_out string?", "its worker's protocol"),
        ("client string", "its client's name, or identity"),
        ("principal string?", "who its client proved to be"),
        ("worker string?", "who answered it, or said that it failed; null if its latest attempt was lost"),
        ("broker string", "the broker's name"),
        ("run string", "this run of the broker, from start to stop"),
        ("target string", "whom it was for: any, all, or names"),
        ("submitted timestamp", "when it came"),
        ("queued timestamp?", "when it could be dispatched: on disk, and not before its time"),
        ("dispatched timestamp?", "when its latest attempt began"),
        ("first_partial timestamp?", "when the first of several answers came"),
        ("finished timestamp", "when it ended"),
        ("outcome string", f"how: {', '.join(OUTCOMES)}"),
        ("error string?", "why there is no result: a stable word"),
        ("attempts int32", "how often it was given to a worker"),
        ("partials int32?", "answers before the last"),
        ("bytes_in int64", "of its request"),
        ("bytes_out int64", "of all its answers"),
        ("durable bool", "it was kept on disk: the store has a record of it, and it is never missing here"),
        ("memo_hit bool", "it was answered from memory, or with the answer to the same request"),
        ("repeat bool", "it was the same job as another, asked for once more"),
        ("priority int32", "-9 to 9"),
        ("deadline timestamp?", "when it had to be finished"),
        ("waited_us int64?", "from queued to its first dispatch, by a clock that does not step"),
        ("ran_us int64?", "its latest attempt, from dispatch to end, by the same"),
        ("took_us int64?", "from submitted to finished, by the same"),
        (
            "rebuilt bool",
            "made from the store after a crash: some columns are null that would not be otherwise",
        ),
    ),
)

ATTEMPTS: Final = Table(
    "attempts",
    "One row per attempt that did not end its job: lost, or taken back. The one that did is in the job's own row.",
    ("job_id", "number", "dispatched"),
    _columns(
        ("job_id string", "the job"),
        ("number int32", "1 for the first attempt"),
        ("service string", "the service"),
        ("worker string", "who had it"),
        ("dialect_out string?", "the worker's protocol"),
        ("broker string", "the broker's name"),
        ("run string", "this run of the broker"),
        ("dispatched timestamp", "when it began"),
        ("ended timestamp", "when it was given up"),
        (
            "outcome string",
            "why: worker-lost, overrun, disowned (after a restart), called-back (cancelled), superseded",
        ),
        ("ran_us int64?", "how long it took, by a clock that does not step"),
        ("rebuilt bool", "made from the store after a crash"),
    ),
)

EVENTS: Final = Table(
    "events",
    "One row per happening in the life of a peer, or of the broker.",
    ("event_id",),
    _columns(
        ("event_id string", "the broker's run and a number"),
        ("at timestamp", "when"),
        ("kind string", "joined, left, expired, denied, started, stopped"),
        ("role string", "of whom: worker, client, peer, broker"),
        ("peer string?", "its name, identity or address"),
        ("service string?", "what a worker offers; several: with commas between"),
        ("dialect string?", "its protocol"),
        ("reason string?", "why, in words"),
        ("broker string", "the broker's name"),
        ("run string", "this run of the broker"),
    ),
)

TABLES: Final = (JOBS, ATTEMPTS, EVENTS)
