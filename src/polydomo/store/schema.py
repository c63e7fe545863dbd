"""The tables, and how a store of an older version becomes one of this version.

`jobs` is what people ask about; it is changed during a job's life, so what may be large is kept apart in
`requests` and `results`, written once. A running job's attempt stands in `jobs`; `attempts` has those that
were lost, so a job that goes well needs no row there. `ending` numbers the ends of jobs in their order. `tallies`
counts jobs by service and state, in the same transaction as the change. `aliases` are further names by which a job
can be asked for. `shelf` has nothing to do with jobs: small things kept by name; `spaces` counts them, in the same
transaction.

The same text serves both databases: {int} is INTEGER or BIGINT, {bytes} is BLOB or BYTEA, {nothing} is no
bytes at all.

A migration is never edited once released: append a new one. Each runs in a transaction of its own, and a
store whose version is higher than the last one here is refused.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Migration(NamedTuple):
    """One step. `postgres` are further statements that only PostgreSQL needs."""

    name: str
    statements: tuple[str, ...]
    postgres: tuple[str, ...] = ()


# Single numbers: `version` of the schema, `seq` the highest ever given out when jobs were removed, `batch`
# the last transaction (PostgreSQL: whether a commit whose answer was lost took place).
META: Final = "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, number {int} NOT NULL)"

FIRST: Final = Migration(
    "jobs and all that belongs to them",
    (
        """
        CREATE TABLE jobs (
            seq {int} PRIMARY KEY,
            id TEXT NOT NULL,
            service {bytes} NOT NULL,
            state TEXT NOT NULL,
            attempt {int} NOT NULL,
            worker {bytes} NOT NULL,
            queued {int} NOT NULL,
            not_before {int},
            dispatched {int},
            finished {int},
            code TEXT NOT NULL,
            message TEXT NOT NULL,
            size_out {int} NOT NULL,
            client {bytes} NOT NULL,
            dialect TEXT NOT NULL,
            key TEXT,
            parent TEXT,
            target TEXT NOT NULL,
            priority {int} NOT NULL,
            max_attempts {int} NOT NULL,
            timeout {int},
            deadline {int},
            submitted {int} NOT NULL,
            size_in {int} NOT NULL,
            key_service {bytes}
        )
        """,
        "CREATE UNIQUE INDEX jobs_id ON jobs (id)",
        "CREATE UNIQUE INDEX jobs_key ON jobs (key, key_service) WHERE key IS NOT NULL",
        "CREATE INDEX jobs_parent ON jobs (parent) WHERE parent IS NOT NULL",
        # Recovery: what has not ended, in order, and how large it is.
        "CREATE INDEX jobs_open ON jobs (seq, size_in) WHERE finished IS NULL",
        # Lists, newest first: of a service, of a client, of a time, of a final state.
        "CREATE INDEX jobs_service ON jobs (service, seq)",
        "CREATE INDEX jobs_client ON jobs (client, seq)",
        "CREATE INDEX jobs_submitted ON jobs (submitted)",
        "CREATE INDEX jobs_state ON jobs (state, seq) WHERE finished IS NOT NULL",
        # Retention: what of a service ended first.
        "CREATE INDEX jobs_ended ON jobs (service, finished) WHERE finished IS NOT NULL AND state <> 'dead'",
        """
        CREATE TABLE requests (
            seq {int} PRIMARY KEY, body {bytes} NOT NULL, envelope {bytes} NOT NULL, options {bytes} NOT NULL
        )
        """,
        "CREATE TABLE results (seq {int} PRIMARY KEY, body {bytes} NOT NULL)",
        """
        CREATE TABLE attempts (
            seq {int} NOT NULL,
            number {int} NOT NULL,
            worker {bytes} NOT NULL,
            started {int} NOT NULL,
            ended {int} NOT NULL,
            outcome TEXT NOT NULL,
            PRIMARY KEY (seq, number)
        )
        """,
        """
        CREATE TABLE partials (
            number {int} PRIMARY KEY,
            seq {int} NOT NULL,
            attempt {int} NOT NULL,
            at {int} NOT NULL,
            body {bytes} NOT NULL
        )
        """,
        "CREATE INDEX partials_seq ON partials (seq, number)",
        """
        CREATE TABLE events (
            number {int} PRIMARY KEY,
            seq {int} NOT NULL,
            at {int} NOT NULL,
            worker {bytes} NOT NULL,
            kind TEXT NOT NULL,
            body {bytes} NOT NULL
        )
        """,
        "CREATE INDEX events_seq ON events (seq, number)",
        """
        CREATE TABLE tallies (
            service {bytes} NOT NULL, state TEXT NOT NULL, jobs {int} NOT NULL, PRIMARY KEY (service, state)
        )
        """,
        "INSERT INTO meta (name, number) VALUES ('seq', 0), ('batch', 0)",
    ),
    # Bodies are often compressed or encrypted already; trying to would only cost the server time.
    (
        "ALTER TABLE requests ALTER COLUMN body SET STORAGE EXTERNAL",
        "ALTER TABLE results ALTER COLUMN body SET STORAGE EXTERNAL",
        "ALTER TABLE partials ALTER COLUMN body SET STORAGE EXTERNAL",
    ),
)

TOKENS: Final = Migration(
    "attempts carry the token that their answers must show",
    (
        "ALTER TABLE jobs ADD COLUMN token {bytes} NOT NULL DEFAULT {nothing}",
        "ALTER TABLE attempts ADD COLUMN token {bytes} NOT NULL DEFAULT {nothing}",
    ),
)

ALIASES: Final = Migration(
    "jobs may have further names",
    (
        "CREATE TABLE aliases (id TEXT PRIMARY KEY, seq {int} NOT NULL)",
        "CREATE INDEX aliases_seq ON aliases (seq)",
    ),
)

SHELF: Final = Migration(
    "things that are kept by name",
    (
        # The value stands last: SQLite finds all else without reading it.
        """
        CREATE TABLE shelf (
            space {bytes} NOT NULL,
            name {bytes} NOT NULL,
            at {int} NOT NULL,
            until {int},
            size {int} NOT NULL,
            value {bytes} NOT NULL,
            PRIMARY KEY (space, name)
        )
        """,
        # Trimming: what is over, what is oldest.
        "CREATE INDEX shelf_until ON shelf (space, until, size) WHERE until IS NOT NULL",
        "CREATE INDEX shelf_at ON shelf (space, at, name, size)",
        "CREATE TABLE spaces (space {bytes} PRIMARY KEY, items {int} NOT NULL, size {int} NOT NULL)",
    ),
    ("ALTER TABLE shelf ALTER COLUMN value SET STORAGE EXTERNAL",),
)

ENDINGS: Final = Migration(
    "ends of jobs are numbered",
    (
        "ALTER TABLE jobs ADD COLUMN ending {int}",
        "UPDATE jobs SET ending = seq WHERE finished IS NOT NULL",
        # Whoever follows what ends: the ledger after a crash, a stream of results.
        "CREATE UNIQUE INDEX jobs_ending ON jobs (ending) WHERE ending IS NOT NULL",
        # The highest that was ever taken back, and up to which one the ledger has them all.
        "INSERT INTO meta (name, number) VALUES ('ending', 0), ('ledger', 0)",
    ),
)

MIGRATIONS: Final[tuple[Migration, ...]] = (FIRST, TOKENS, ALIASES, SHELF, ENDINGS)
