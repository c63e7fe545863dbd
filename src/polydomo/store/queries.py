"""All SQL statements of the store. The same text runs on SQLite and PostgreSQL.

A query is a text with named parameters (`:id`). A `BulkStatement` works on many rows at once: they are the table `v`
in its text, with the given columns. An `SqlTable` is a table to which rows are appended.

Many rows go into one statement because SQLite's driver releases the GIL for each statement, and next to a busy event
loop taking it back costs more than the statement itself (measured: 200 to 600 µs per row instead of 25).
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from polydomo.store.errors import StoreInvalid
from polydomo.store.records import ENDED, OPEN, ROW, JobFilter

# A named parameter in a query.
PARAMETER: Final = re.compile(r":([a-z_]+)")

Kind = Literal["int", "text", "bytes"]
KINDS: Final[dict[str, Kind]] = {"int": "int", "text": "text", "bytes": "bytes"}


class SqlColumn(NamedTuple):
    """A column's name and type."""

    name: str
    kind: Kind


class SqlTable(NamedTuple):
    """A table, with its columns in the order of the rows that are appended."""

    name: str
    columns: tuple[SqlColumn, ...]


class BulkStatement(NamedTuple):
    """A statement about the rows `v`. `returns` are the columns of its result set, if it has one."""

    columns: tuple[SqlColumn, ...]
    text: str
    returns: tuple[SqlColumn, ...] = ()


def _columns(text: str) -> tuple[SqlColumn, ...]:
    """Parse "name:kind name:kind"; the kind defaults to int."""
    found = []
    for word in text.split():
        name, _, kind = word.partition(":")
        found.append(SqlColumn(name, KINDS[kind or "int"]))
    return tuple(found)


# The columns of a job in the order of JobRecord's fields: those of JobProgress, then the rest of table `jobs`.
PROGRESS: Final = _columns(
    "id:text service:bytes seq state:text attempt worker:bytes queued not_before dispatched finished "
    "code:text message:text size_out token:bytes ending holder:text principal:text size_kept"
)
CHANGING: Final = PROGRESS[2:-2]  # `seq`, and the columns that change
REST: Final = _columns(
    "client:bytes dialect:text key:text parent:text target:text priority max_attempts timeout deadline "
    "submitted size_in"
)
JOB: Final = ", ".join(f"jobs.{column.name}" for column in PROGRESS + REST)
JOB_WITH_REQUEST: Final = f"{JOB}, requests.body, requests.envelope, requests.options"

# Tables to which the writer appends rows

JOBS: Final = SqlTable("jobs", (*PROGRESS, *REST, SqlColumn("key_service", "bytes")))
REQUESTS: Final = SqlTable("requests", _columns("seq body:bytes envelope:bytes options:bytes"))
RESULTS: Final = SqlTable("results", _columns("seq body:bytes"))
ATTEMPTS: Final = SqlTable(
    "attempts", _columns("seq number worker:bytes started ended outcome:text token:bytes")
)
PARTIALS: Final = SqlTable("partials", _columns("seq number attempt at body:bytes"))
EVENTS: Final = SqlTable("events", _columns("seq number at worker:bytes kind:text body:bytes"))
ITEMS: Final = SqlTable("shelf", _columns("space:bytes name:bytes at until size value:bytes"))

# Jobs, in a batch of writes

# Load the progress of the jobs that a batch of writes is about.
LOAD_PROGRESS: Final = BulkStatement(
    _columns("id:text"),
    f"SELECT {', '.join(column.name for column in PROGRESS)} FROM jobs WHERE id IN (SELECT id FROM v)",
    PROGRESS,
)
# Find the jobs that hold these idempotency keys.
LOAD_KEY_HOLDERS: Final = BulkStatement(
    _columns("principal:text key:text key_service:bytes"),
    """
    SELECT jobs.principal, jobs.key_service, jobs.key, jobs.id, jobs.seq
    FROM v JOIN jobs ON jobs.key = v.key AND jobs.key_service = v.key_service AND jobs.principal = v.principal
        AND jobs.key IS NOT NULL
    """,
    _columns("principal:text key_service:bytes key:text id:text seq"),
)
# Write the progress of jobs.
UPDATE_PROGRESS: Final = BulkStatement(
    CHANGING,
    f"UPDATE jobs SET {', '.join(f'{column.name} = v.{column.name}' for column in CHANGING[1:])} "
    "FROM v WHERE jobs.seq = v.seq",
)
# Change a job's attempt limit (NULL leaves it) and release its idempotency key.
UPDATE_JOBS: Final = BulkStatement(
    _columns("seq max_attempts release_key"),
    """
    UPDATE jobs SET max_attempts = coalesce(v.max_attempts, jobs.max_attempts),
        key = CASE WHEN v.release_key = 1 THEN NULL ELSE jobs.key END
    FROM v WHERE jobs.seq = v.seq
    """,
)
# Replace the options of requests.
UPDATE_OPTIONS: Final = BulkStatement(
    _columns("seq options:bytes"),
    "UPDATE requests SET options = v.options FROM v WHERE requests.seq = v.seq",
)
# Add to the number of jobs that a service has in a state.
ADD_TALLIES: Final = BulkStatement(
    _columns("service:bytes state:text jobs"),
    """
    INSERT INTO tallies (service, state, jobs) SELECT service, state, jobs FROM v WHERE true
    ON CONFLICT (service, state) DO UPDATE SET jobs = tallies.jobs + excluded.jobs
    """,
)
# Remove the counts of services that have no jobs left.
DELETE_EMPTY_TALLIES: Final = "DELETE FROM tallies WHERE jobs = 0"

# Add to what the jobs of principals take.
ADD_HOLDINGS: Final = BulkStatement(
    _columns("principal:text jobs size"),
    """
    INSERT INTO holdings (principal, jobs, size) SELECT principal, jobs, size FROM v WHERE true
    ON CONFLICT (principal) DO UPDATE SET jobs = holdings.jobs + excluded.jobs, size = holdings.size + excluded.size
    """,
)
# Remove the sums of principals that have no jobs left.
DELETE_EMPTY_HOLDINGS: Final = "DELETE FROM holdings WHERE jobs = 0"


def _delete(table: str, by: str = "seq") -> BulkStatement:
    """Return the statement that removes rows from a table by one of its columns."""
    columns = _columns(by)
    name = columns[0].name
    return BulkStatement(columns, f"DELETE FROM {table} WHERE {name} IN (SELECT {name} FROM v)")


# Remove the results of jobs that are sent again.
DELETE_RESULTS: Final = _delete("results")
# Remove jobs from all tables.
DELETE_JOBS: Final = tuple(
    _delete(table) for table in ("jobs", "requests", "results", "attempts", "partials", "events", "aliases")
)
# Add aliases of jobs. An alias that another job has moves to this one.
UPSERT_ALIASES: Final = BulkStatement(
    _columns("id:text seq"),
    """
    INSERT INTO aliases (id, seq) SELECT id, seq FROM v WHERE true
    ON CONFLICT (id) DO UPDATE SET seq = excluded.seq
    """,
)
# Remove aliases by name.
DELETE_ALIASES: Final = _delete("aliases", "id:text")

# Counters in table `meta`

# Raise a counter: `seq` or `ending`, the highest number that must not be assigned again; `ledger`, the last end in the
# ledger.
RAISE_COUNTER: Final = "UPDATE meta SET number = :number WHERE name = :name AND number < :number"
# Read up to which `ending` the ledger is complete.
LEDGER_POSITION: Final = "SELECT number FROM meta WHERE name = 'ledger'"
# Store this transaction's number (PostgreSQL).
SET_BATCH_NUMBER: Final = "UPDATE meta SET number = :batch WHERE name = 'batch'"
# Read the last transaction's number, after waiting for one that still holds the row (PostgreSQL).
BATCH_NUMBER: Final = "SELECT number FROM meta WHERE name = 'batch' FOR UPDATE"
# Read how many migrations have run.
VERSION: Final = "SELECT number FROM meta WHERE name = 'version'"
# Store how many migrations have run.
SET_VERSION: Final = """
    INSERT INTO meta (name, number) VALUES ('version', :version)
    ON CONFLICT (name) DO UPDATE SET number = excluded.number
"""
# Read the highest `seq` that was ever assigned.
LAST_SEQ: Final = """
    SELECT coalesce(max(number), 0) FROM (
        SELECT max(seq) AS number FROM jobs UNION ALL SELECT number FROM meta WHERE name = 'seq'
    ) AS numbers
"""
# Read the highest `ending` that was ever assigned.
LAST_ENDING: Final = """
    SELECT coalesce(max(number), 0) FROM (
        SELECT max(ending) AS number FROM jobs
        UNION ALL SELECT number FROM meta WHERE name IN ('ending', 'ledger')
    ) AS numbers
"""
# Read the highest number of a partial reply or an event.
LAST_NUMBER: Final = """
    SELECT coalesce(max(number), 0) FROM (
        SELECT max(number) AS number FROM partials UNION ALL SELECT max(number) FROM events
    ) AS numbers
"""

# Reading jobs

# The `seq` of the job with this id, or else of the one with this alias.
SEQ_BY_NAME: Final = """
    coalesce((SELECT seq FROM jobs WHERE id = :name), (SELECT seq FROM aliases WHERE id = :name))
"""
# One job with its request.
GET_JOB: Final = f"""
    SELECT {JOB_WITH_REQUEST} FROM jobs JOIN requests ON requests.seq = jobs.seq WHERE jobs.seq = {SEQ_BY_NAME}
"""
# The job with an idempotency key, with its request.
GET_JOB_BY_KEY: Final = f"""
    SELECT {JOB_WITH_REQUEST} FROM jobs JOIN requests ON requests.seq = jobs.seq
    WHERE jobs.key = :key AND jobs.key_service = :service AND jobs.principal = :principal AND jobs.key IS NOT NULL
"""
# The aliases of unfinished jobs.
LIST_OPEN_ALIASES: Final = """
    SELECT aliases.id, jobs.id FROM aliases JOIN jobs ON jobs.seq = aliases.seq WHERE jobs.finished IS NULL
"""
# The result of a finished job.
GET_RESULT: Final = f"""
    SELECT id, service, state, attempt, worker, code, message, finished, results.body
    FROM jobs LEFT JOIN results ON results.seq = jobs.seq
    WHERE jobs.seq = {SEQ_BY_NAME} AND finished IS NOT NULL
"""
# Finished jobs without their requests, in the order in which they finished.
LIST_ENDINGS: Final = f"""
    SELECT {JOB} FROM jobs WHERE ending > :after AND ending IS NOT NULL ORDER BY ending LIMIT :limit
"""
# A job's lost attempts, and the attempt that is running or finished the job.
LIST_ATTEMPTS: Final = """
    SELECT number, worker, started, ended, outcome, token FROM attempts
    WHERE seq = (SELECT seq FROM jobs WHERE id = :id)
    UNION ALL
    SELECT attempt, worker, dispatched, finished, CASE WHEN finished IS NULL THEN '' ELSE state END, token
    FROM jobs WHERE id = :id AND dispatched IS NOT NULL
    ORDER BY 1
"""
# A job's partial replies.
LIST_PARTIALS: Final = """
    SELECT number, attempt, at, body FROM partials
    WHERE seq = (SELECT seq FROM jobs WHERE id = :id) AND number > :after ORDER BY number LIMIT :limit
"""
# A job's events.
LIST_EVENTS: Final = """
    SELECT number, at, worker, kind, body FROM events
    WHERE seq = (SELECT seq FROM jobs WHERE id = :id) AND number > :after ORDER BY number LIMIT :limit
"""
# The number of jobs by service and state.
LIST_TALLIES: Final = "SELECT service, state, jobs FROM tallies WHERE jobs <> 0 ORDER BY service, state"
# What the jobs of each principal take.
LIST_HOLDINGS: Final = "SELECT principal, jobs, size FROM holdings WHERE jobs <> 0 ORDER BY principal"
# A principal's finished jobs, dead letters or others, those that finished first. They are looked for in the order in
# which jobs finished: a principal has so much only if many of the oldest are its own.
LIST_OLDEST_ENDED: Final = f"""
    SELECT id, state, {ROW} + size_kept + size_out FROM jobs
    WHERE ending IS NOT NULL AND principal = :principal AND (state = 'dead') = :dead ORDER BY ending LIMIT :limit
"""
# The last of the next unfinished jobs, and the size of all of their bodies.
MEASURE_OPEN: Final = """
    SELECT max(seq), sum(size_in) FROM (
        SELECT seq, size_in FROM jobs WHERE finished IS NULL AND seq > :after ORDER BY seq LIMIT :limit
    ) AS open
"""
# The size of each of the next unfinished jobs, if all bodies together are too large.
LIST_OPEN_SIZES: Final = """
    SELECT seq, size_in FROM jobs WHERE finished IS NULL AND seq > :after ORDER BY seq LIMIT :limit
"""
# Unfinished jobs with their requests, in order of arrival.
LIST_OPEN: Final = f"""
    SELECT {JOB_WITH_REQUEST} FROM jobs JOIN requests ON requests.seq = jobs.seq
    WHERE jobs.finished IS NULL AND jobs.seq > :after AND jobs.seq <= :last ORDER BY jobs.seq
"""
# Services that have finished jobs other than dead letters.
LIST_SWEEPABLE: Final = """
    SELECT DISTINCT service FROM tallies WHERE jobs > 0 AND state IN ('done', 'failed', 'cancelled')
"""
# The ids of finished jobs, no dead letters, that finished at their service's cutoff time or earlier.
LIST_EXPIRED: Final = BulkStatement(
    _columns("service:bytes cutoff"),
    """
    SELECT jobs.id FROM v JOIN jobs ON jobs.service = v.service AND jobs.finished <= v.cutoff
    WHERE jobs.finished IS NOT NULL AND jobs.state <> 'dead' LIMIT {limit}
    """,
    _columns("id:text"),
)

# Conditions of `find_jobs`, by the names of JobFilter's fields. `IS [NOT] NULL` selects a partial index.
CONDITIONS: Final[dict[str, str]] = {
    "state": "state = :state",
    "service": "service = :service",
    "client": "client = :client",
    "principal": "principal = :principal",
    "key": "key = :key AND key IS NOT NULL",
    "parent": "parent = :parent AND parent IS NOT NULL",
    "since": "submitted >= :since",
    "before": "submitted < :before",
}


def find_jobs(filter: JobFilter) -> tuple[str, dict[str, object]]:
    """Return the query for one page of jobs and one job more, without their requests, and its parameters."""
    given = {name: getattr(filter, name) for name in CONDITIONS if getattr(filter, name) is not None}
    conditions = [CONDITIONS[name] for name in given]
    if filter.state is not None:
        conditions.append("finished IS NULL" if filter.state in OPEN else "finished IS NOT NULL")
    after = page_position(filter)
    if after is not None:
        conditions.append("seq > :after" if filter.oldest_first else "seq < :after")
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    order = "ASC" if filter.oldest_first else "DESC"
    text = f"SELECT {JOB} FROM jobs {where} ORDER BY seq {order} LIMIT :limit"
    return text, {**given, "after": after, "limit": filter.limit + 1}


def page_position(filter: JobFilter) -> int | None:
    """Check the filter and return the `seq` after which its page starts; None for the first page."""
    if filter.limit < 1:
        raise StoreInvalid(f"a page has at least 1 job, not {filter.limit}")
    if filter.state is not None and filter.state not in OPEN + ENDED:
        raise StoreInvalid(f"there is no state {filter.state!r}", hint=f"there are {', '.join(OPEN + ENDED)}")
    if filter.page is None:
        return None
    if not filter.page.isascii() or not filter.page.isdigit() or len(filter.page) > 18:
        raise StoreInvalid(
            f"{filter.page[:40]!r} is not a page of this list", hint="use the `next` of a page"
        )
    return int(filter.page)


# Items: the key-value store (tables `shelf` and `spaces`)

# Find which of these items exist, and their sizes.
LOAD_ITEM_SIZES: Final = BulkStatement(
    _columns("space:bytes name:bytes"),
    """
    SELECT shelf.space, shelf.name, shelf.size
    FROM v JOIN shelf ON shelf.space = v.space AND shelf.name = v.name
    """,
    _columns("space:bytes name:bytes size"),
)
# Remove items by name.
DELETE_ITEMS: Final = BulkStatement(
    _columns("space:bytes name:bytes"), "DELETE FROM shelf WHERE (space, name) IN (SELECT space, name FROM v)"
)
# Remove all items of spaces, and the spaces' totals.
CLEAR_SPACES: Final = (_delete("shelf", "space:bytes"), _delete("spaces", "space:bytes"))
# Add to the totals of spaces.
ADD_SPACE_TOTALS: Final = BulkStatement(
    _columns("space:bytes items size"),
    """
    INSERT INTO spaces (space, items, size) SELECT space, items, size FROM v WHERE true
    ON CONFLICT (space) DO UPDATE SET items = spaces.items + excluded.items, size = spaces.size + excluded.size
    """,
)
# Remove the totals of empty spaces.
DELETE_EMPTY_SPACES: Final = "DELETE FROM spaces WHERE items = 0"
# The number and size of a space's expired items.
MEASURE_EXPIRED_ITEMS: Final = """
    SELECT count(*), coalesce(sum(size), 0) FROM shelf
    WHERE space = :space AND until <= :now AND until IS NOT NULL
"""
# Remove a space's expired items.
DELETE_EXPIRED_ITEMS: Final = "DELETE FROM shelf WHERE space = :space AND until <= :now AND until IS NOT NULL"
# The oldest items of a space after a given one.
LIST_OLDEST_ITEMS: Final = """
    SELECT at, name, size FROM shelf WHERE space = :space AND (at, name) > (:at, :name)
    ORDER BY at, name LIMIT :limit
"""
# Remove the oldest items of a space, up to a given one.
DELETE_OLDEST_ITEMS: Final = "DELETE FROM shelf WHERE space = :space AND (at, name) <= (:at, :name)"
# One item.
GET_ITEM: Final = "SELECT name, value, at, until FROM shelf WHERE space = :space AND name = :name"
# Items after a given name, without their values.
LIST_ITEMS: Final = """
    SELECT name, at, until FROM shelf WHERE space = :space AND name > :after ORDER BY name LIMIT :limit
"""
# The first items, without their values; a name may be empty, so that LIST_ITEMS would skip it.
LIST_FIRST_ITEMS: Final = "SELECT name, at, until FROM shelf WHERE space = :space ORDER BY name LIMIT :limit"
# The names of all spaces that have items.
LIST_SPACES: Final = "SELECT space FROM spaces WHERE items > 0"
# The number of a space's items and the size of their values.
SPACE_TOTALS: Final = "SELECT items, size FROM spaces WHERE space = :space"
