"""The tables, and the migrations that bring an older store up to date.

`jobs` is what people query. Its rows change during a job's life, so everything large is in `requests` and `results`,
which are written once. The latest attempt is part of the job's row; `attempts` has the lost ones, so that a job that
succeeds at once needs no row there. `ending` numbers jobs in the order in which they finish. `tallies` counts jobs by
service and state, in the same transaction as the change; `holdings` sums their bytes by principal. `aliases` are
further names of jobs. `shelf` is a key-value store for other parts of the broker; `spaces` has its totals, in the same
transaction as the change.

The same text serves both databases: {int} is INTEGER or BIGINT, {bytes} is BLOB or BYTEA, {nothing} is the empty byte
string.

A released migration is never edited: append a new one. Each runs in a transaction of its own, and a store whose
version is higher than the number of migrations is refused.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Migration(NamedTuple):
    """The statements of one schema version. `postgres` are further statements for PostgreSQL only."""

    statements: tuple[str, ...]
    postgres: tuple[str, ...] = ()


# Single numbers: `version` of the schema; `seq` and `ending`, the highest of removed jobs; `ledger`, the last end that
# the ledger has; `batch`, the last transaction (PostgreSQL: did a commit happen whose reply was lost?).
META: Final = Migration(("CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, number {int} NOT NULL)",))

# Jobs and everything that belongs to them.
FIRST: Final = Migration(
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
        # Recovery: unfinished jobs in order, and their sizes.
        "CREATE INDEX jobs_open ON jobs (seq, size_in) WHERE finished IS NULL",
        # Lists, newest first: by service, client, time and final state.
        "CREATE INDEX jobs_service ON jobs (service, seq)",
        "CREATE INDEX jobs_client ON jobs (client, seq)",
        "CREATE INDEX jobs_submitted ON jobs (submitted)",
        "CREATE INDEX jobs_state ON jobs (state, seq) WHERE finished IS NOT NULL",
        # Retention: a service's jobs that finished first.
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
    # Bodies are often compressed or encrypted already; compressing them again costs the server time for nothing.
    (
        "ALTER TABLE requests ALTER COLUMN body SET STORAGE EXTERNAL",
        "ALTER TABLE results ALTER COLUMN body SET STORAGE EXTERNAL",
        "ALTER TABLE partials ALTER COLUMN body SET STORAGE EXTERNAL",
    ),
)

# Attempts have a token that replies to them must carry.
TOKENS: Final = Migration(
    (
        "ALTER TABLE jobs ADD COLUMN token {bytes} NOT NULL DEFAULT {nothing}",
        "ALTER TABLE attempts ADD COLUMN token {bytes} NOT NULL DEFAULT {nothing}",
    ),
)

# Jobs have aliases.
ALIASES: Final = Migration(
    (
        "CREATE TABLE aliases (id TEXT PRIMARY KEY, seq {int} NOT NULL)",
        "CREATE INDEX aliases_seq ON aliases (seq)",
    ),
)

# The key-value store.
KV: Final = Migration(
    (
        # The value is the last column: SQLite reads the others without it.
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
        # Trimming: expired items, oldest items.
        "CREATE INDEX shelf_until ON shelf (space, until, size) WHERE until IS NOT NULL",
        "CREATE INDEX shelf_at ON shelf (space, at, name, size)",
        "CREATE TABLE spaces (space {bytes} PRIMARY KEY, items {int} NOT NULL, size {int} NOT NULL)",
    ),
    ("ALTER TABLE shelf ALTER COLUMN value SET STORAGE EXTERNAL",),
)

# Finished jobs are numbered.
ENDINGS: Final = Migration(
    (
        "ALTER TABLE jobs ADD COLUMN ending {int}",
        "UPDATE jobs SET ending = seq WHERE finished IS NOT NULL",
        # For readers that follow finished jobs: the ledger after a crash, a stream of results.
        "CREATE UNIQUE INDEX jobs_ending ON jobs (ending) WHERE ending IS NOT NULL",
        # The highest number of a revived job, and the number up to which the ledger is complete.
        "INSERT INTO meta (name, number) VALUES ('ending', 0), ('ledger', 0)",
    ),
)

# Jobs belong to principals, and so do attempts. A key is unique among the jobs of one principal.
OWNERS: Final = Migration(
    (
        "ALTER TABLE jobs ADD COLUMN principal TEXT NOT NULL DEFAULT 'anonymous'",
        "ALTER TABLE jobs ADD COLUMN holder TEXT NOT NULL DEFAULT 'anonymous'",
        "DROP INDEX jobs_key",
        "CREATE UNIQUE INDEX jobs_key ON jobs (key, key_service, principal) WHERE key IS NOT NULL",
    ),
)

# What each principal's jobs take: see `JobProgress.footprint`. The 1,024 bytes are `records.ROW`.
HOLDINGS: Final = Migration(
    (
        "ALTER TABLE jobs ADD COLUMN size_kept {int} NOT NULL DEFAULT 0",
        "UPDATE jobs SET size_kept = size_in",
        "CREATE TABLE holdings (principal TEXT PRIMARY KEY, jobs {int} NOT NULL, size {int} NOT NULL)",
        """
        INSERT INTO holdings (principal, jobs, size)
        SELECT principal, count(*), sum(1024 + size_kept + size_out) FROM jobs GROUP BY principal
        """,
    ),
)

MIGRATIONS: Final[tuple[Migration, ...]] = (FIRST, TOKENS, ALIASES, KV, ENDINGS, OWNERS, HOLDINGS)
