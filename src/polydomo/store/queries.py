"""Every SQL statement of the store, each with a sentence. The same text runs on SQLite and PostgreSQL.

A `Query` has named parameters (`:id`). A `BulkInsert` works on many rows at once: they are the table `v` in its
text, with the given columns. A `SqlTable` is what rows are simply appended to.

Why many rows at once: a statement per row would be easier, but Python gives up its global lock for each one,
and next to a busy event loop getting it back takes longer than the statement (measured: 200 to 600 µs per row
instead of 25).
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

# A named parameter in a text.
PARAMETER: Final = re.compile(r":([a-z_]+)")

Kind = Literal["int", "text", "bytes"]
KINDS: Final[dict[str, Kind]] = {"int": "int", "text": "text", "bytes": "bytes"}


class SqlColumn(NamedTuple):
    name: str
    kind: Kind


class Query(NamedTuple):
    about: str
    text: str


class SqlTable(NamedTuple):
    """Rows with these columns, in this order, are appended."""

    name: str
    columns: tuple[SqlColumn, ...]


class BulkInsert(NamedTuple):
    """`text` with the rows `v`. If it is a question, `answer` are the columns of its answer."""

    about: str
    columns: tuple[SqlColumn, ...]
    text: str
    answer: tuple[SqlColumn, ...] = ()


def _columns(text: str) -> tuple[SqlColumn, ...]:
    """From "name:kind name:kind"; without a kind it is int."""
    found = []
    for word in text.split():
        name, _, kind = word.partition(":")
        found.append(SqlColumn(name, KINDS[kind or "int"]))
    return tuple(found)


# The columns of a job in the order of JobRecord's fields; `progress` is the part that Progress has.
PROGRESS: Final = _columns(
    "id:text service:bytes seq state:text attempt worker:bytes queued not_before dispatched finished "
    "code:text message:text size_out token:bytes ending"
)
REST: Final = _columns(
    "client:bytes dialect:text key:text parent:text target:text priority max_attempts timeout deadline "
    "submitted size_in"
)
JOB: Final = ", ".join(f"jobs.{column.name}" for column in PROGRESS + REST)

# The writer

JOBS: Final = SqlTable("jobs", (*PROGRESS, *REST, SqlColumn("key_service", "bytes")))
REQUESTS: Final = SqlTable("requests", _columns("seq body:bytes envelope:bytes options:bytes"))
RESULTS: Final = SqlTable("results", _columns("seq body:bytes"))
ATTEMPTS: Final = SqlTable(
    "attempts", _columns("seq number worker:bytes started ended outcome:text token:bytes")
)
PARTIALS: Final = SqlTable("partials", _columns("number seq attempt at body:bytes"))
EVENTS: Final = SqlTable("events", _columns("number seq at worker:bytes kind:text body:bytes"))

LOAD: Final = BulkInsert(
    "The progress of the jobs that a batch of writes is about.",
    _columns("id:text"),
    f"SELECT {', '.join(column.name for column in PROGRESS)} FROM jobs WHERE id IN (SELECT id FROM v)",
    PROGRESS,
)
HOLDERS: Final = BulkInsert(
    "Which of these idempotency keys are taken, and by which job.",
    _columns("key:text key_service:bytes"),
    "SELECT jobs.key_service, jobs.key, jobs.id, jobs.seq FROM v "
    "JOIN jobs ON jobs.key = v.key AND jobs.key_service = v.key_service AND jobs.key IS NOT NULL",
    _columns("key_service:bytes key:text id:text seq"),
)
CHANGE: Final = BulkInsert(
    "A job's progress. Its service is left alone: it belongs to indexes and hardly ever changes.",
    _columns(
        "seq state:text attempt worker:bytes queued not_before dispatched finished "
        "code:text message:text size_out token:bytes ending"
    ),
    """
    UPDATE jobs SET state = v.state, attempt = v.attempt, worker = v.worker, queued = v.queued,
        not_before = v.not_before, dispatched = v.dispatched, finished = v.finished, code = v.code,
        message = v.message, size_out = v.size_out, token = v.token,
        ending = v.ending
    FROM v WHERE jobs.seq = v.seq
    """,
)
REVISE: Final = BulkInsert(
    "The rest of a job; what is not given stays as it is.",
    _columns("seq service:bytes target:text priority max_attempts timeout deadline size_in release_key"),
    """
    UPDATE jobs SET service = coalesce(v.service, jobs.service), target = coalesce(v.target, jobs.target),
        priority = coalesce(v.priority, jobs.priority),
        max_attempts = coalesce(v.max_attempts, jobs.max_attempts),
        timeout = coalesce(v.timeout, jobs.timeout), deadline = coalesce(v.deadline, jobs.deadline),
        size_in = coalesce(v.size_in, jobs.size_in),
        key = CASE WHEN v.release_key = 1 THEN NULL ELSE jobs.key END
    FROM v WHERE jobs.seq = v.seq
    """,
)
REWRITE: Final = BulkInsert(
    "A request that was passed on with another body, or other options.",
    _columns("seq body:bytes options:bytes"),
    """
    UPDATE requests SET body = coalesce(v.body, requests.body), options = coalesce(v.options,
    requests.options) FROM v WHERE requests.seq = v.seq
    """,
)
TALLY: Final = BulkInsert(
    "So many jobs more, or fewer, of a service are in a state.",
    _columns("service:bytes state:text jobs"),
    """
    INSERT INTO tallies (service, state, jobs) SELECT service, state, jobs FROM v WHERE true
    ON CONFLICT (service, state) DO UPDATE SET jobs = tallies.jobs + excluded.jobs
    """,
)


def _remove(table: str) -> BulkInsert:
    about = f"The rows of {table} that belong to removed jobs."
    return BulkInsert(about, _columns("seq"), f"DELETE FROM {table} WHERE seq IN (SELECT seq FROM v)")


REMOVE_RESULTS: Final = _remove("results")
REMOVE: Final = (
    _remove("jobs"),
    _remove("requests"),
    REMOVE_RESULTS,
    _remove("attempts"),
    _remove("partials"),
    _remove("events"),
    _remove("aliases"),
)
ALIAS: Final = BulkInsert(
    "Further names of jobs. One that was another job's is this one's now.",
    _columns("id:text seq"),
    "INSERT INTO aliases (id, seq) SELECT id, seq FROM v WHERE true ON CONFLICT (id) DO UPDATE SET seq = excluded.seq",
)
REMOVE_NAMES: Final = BulkInsert(
    "Further names that nobody has any more.",
    _columns("id:text"),
    "DELETE FROM aliases WHERE id IN (SELECT id FROM v)",
)
REMOVE_TALLIES: Final = Query("Services that nothing is left of.", "DELETE FROM tallies WHERE jobs = 0")
KEEP_SEQ: Final = Query(
    "Numbers are not given out twice, though their jobs are removed.",
    "UPDATE meta SET number = :seq WHERE name = 'seq' AND number < :seq",
)

KEEP_ENDING: Final = Query(
    "The same for the numbers of ends.",
    "UPDATE meta SET number = :ending WHERE name = 'ending' AND number < :ending",
)
SETTLE: Final = Query(
    "The ledger has all ends up to this one.",
    "UPDATE meta SET number = :ending WHERE name = 'ledger' AND number < :ending",
)

MARK: Final = Query(
    "This transaction's number (PostgreSQL).", "UPDATE meta SET number = :batch WHERE name = 'batch'"
)
MARKED: Final = Query(
    "The number of the last transaction, as soon as none is under way (PostgreSQL).",
    "SELECT number FROM meta WHERE name = 'batch' FOR UPDATE",
)

# The writer, at the shelf

SHELF: Final = SqlTable("shelf", _columns("space:bytes name:bytes at until size value:bytes"))
SHELVED: Final = BulkInsert(
    "Which of these items are there, and how large they are.",
    _columns("space:bytes name:bytes"),
    "SELECT shelf.space, shelf.name, shelf.size FROM v "
    "JOIN shelf ON shelf.space = v.space AND shelf.name = v.name",
    _columns("space:bytes name:bytes size"),
)
UNSHELVE: Final = BulkInsert(
    "Items that are replaced, or not wanted any more.",
    _columns("space:bytes name:bytes"),
    "DELETE FROM shelf WHERE (space, name) IN (SELECT space, name FROM v)",
)
CLEAR: Final = (
    BulkInsert(
        "All items of spaces.",
        _columns("space:bytes"),
        "DELETE FROM shelf WHERE space IN (SELECT space FROM v)",
    ),
    BulkInsert(
        "And that there were any.",
        _columns("space:bytes"),
        "DELETE FROM spaces WHERE space IN (SELECT space FROM v)",
    ),
)
FILL: Final = BulkInsert(
    "So many items and bytes more, or fewer, are in a space.",
    _columns("space:bytes items size"),
    """
    INSERT INTO spaces (space, items, size) SELECT space, items, size FROM v WHERE true
    ON CONFLICT (space) DO UPDATE SET items = spaces.items + excluded.items, size = spaces.size + excluded.size
    """,
)
OVER: Final = Query(
    "How much of a space has expired.",
    "SELECT count(*), coalesce(sum(size), 0) FROM shelf "
    "WHERE space = :space AND until <= :now AND until IS NOT NULL",
)
REMOVE_OVER: Final = Query(
    "What has expired goes.",
    "DELETE FROM shelf WHERE space = :space AND until <= :now AND until IS NOT NULL",
)
OLDEST: Final = Query(
    "The oldest items of a space, behind one that was seen.",
    "SELECT at, name, size FROM shelf WHERE space = :space AND (at, name) > (:at, :name) "
    "ORDER BY at, name LIMIT :limit",
)
REMOVE_OLDEST: Final = Query(
    "The oldest items of a space go, up to this one.",
    "DELETE FROM shelf WHERE space = :space AND (at, name) <= (:at, :name)",
)
REMOVE_SPACES: Final = Query("Spaces that nothing is left in.", "DELETE FROM spaces WHERE items = 0")

# Opening

VERSION: Final = Query("Which migrations have run.", "SELECT number FROM meta WHERE name = 'version'")
SET_VERSION: Final = Query(
    "A migration has run.",
    "INSERT INTO meta (name, number) VALUES ('version', :version) "
    "ON CONFLICT (name) DO UPDATE SET number = excluded.number",
)
LAST_SEQ: Final = Query(
    "The highest number a job ever had.",
    "SELECT coalesce(max(number), 0) FROM "
    "(SELECT max(seq) AS number FROM jobs UNION ALL SELECT number FROM meta WHERE name = 'seq') AS numbers",
)
LAST_ENDING: Final = Query(
    "The highest number an end ever had.",
    "SELECT coalesce(max(number), 0) FROM "
    "(SELECT max(ending) AS number FROM jobs UNION ALL SELECT number FROM meta WHERE name IN ('ending', 'ledger')) "
    "AS numbers",
)
LAST_NUMBER: Final = Query(
    "The highest number of a partial or an event.",
    "SELECT coalesce(max(number), 0) FROM "
    "(SELECT max(number) AS number FROM partials UNION ALL SELECT max(number) FROM events) AS numbers",
)

# The reader

WITH_REQUEST: Final = f"{JOB}, requests.body, requests.envelope, requests.options"

GET: Final = Query(
    "One job with its request.",
    f"SELECT {WITH_REQUEST} FROM jobs JOIN requests ON requests.seq = jobs.seq WHERE jobs.id = :id",
)
NAMED: Final = Query(
    "The job that has this further name; none if it is some job's id.",
    "SELECT jobs.id FROM aliases JOIN jobs ON jobs.seq = aliases.seq WHERE aliases.id = :id "
    "AND NOT EXISTS (SELECT 1 FROM jobs WHERE id = :id)",
)
OPEN_ALIASES: Final = Query(
    "The further names of unfinished jobs.",
    "SELECT aliases.id, jobs.id FROM aliases JOIN jobs ON jobs.seq = aliases.seq WHERE jobs.finished IS NULL",
)
BY_KEY: Final = Query(
    "The job with an idempotency key.",
    f"SELECT {WITH_REQUEST} FROM jobs JOIN requests ON requests.seq = jobs.seq "
    "WHERE jobs.key = :key AND jobs.key_service = :service AND jobs.key IS NOT NULL",
)
RESULT: Final = Query(
    "How a job ended.",
    "SELECT id, service, state, attempt, worker, code, message, finished, results.body "
    "FROM jobs LEFT JOIN results ON results.seq = jobs.seq WHERE id = :id AND finished IS NOT NULL",
)
ENDED_JOBS: Final = Query(
    "Jobs without their requests, in the order in which they ended.",
    f"SELECT {JOB} FROM jobs WHERE ending > :after AND ending IS NOT NULL ORDER BY ending LIMIT :limit",
)
SETTLED: Final = Query(
    "Up to which end the ledger has them all.", "SELECT number FROM meta WHERE name = 'ledger'"
)
ATTEMPTS_OF: Final = Query(
    "The attempts that were lost, and the one that runs or ended the job.",
    """
    SELECT number, worker, started, ended, outcome, token FROM attempts
    WHERE seq = (SELECT seq FROM jobs WHERE id = :id)
    UNION ALL
    SELECT attempt, worker, dispatched, finished, CASE WHEN finished IS NULL THEN '' ELSE state END, token
    FROM jobs WHERE id = :id AND dispatched IS NOT NULL
    ORDER BY 1
    """,
)
PARTIALS_OF: Final = Query(
    "A job's partial answers.",
    "SELECT number, attempt, at, body FROM partials "
    "WHERE seq = (SELECT seq FROM jobs WHERE id = :id) AND number > :after ORDER BY number LIMIT :limit",
)
EVENTS_OF: Final = Query(
    "A job's events.",
    "SELECT number, at, worker, kind, body FROM events "
    "WHERE seq = (SELECT seq FROM jobs WHERE id = :id) AND number > :after ORDER BY number LIMIT :limit",
)
ITEM: Final = Query(
    "One item.", "SELECT name, value, at, until FROM shelf WHERE space = :space AND name = :name"
)
ITEMS: Final = Query(
    "Items without their values, by name.",
    "SELECT name, at, until FROM shelf WHERE space = :space AND name > :after ORDER BY name LIMIT :limit",
)
FIRST_ITEMS: Final = Query(
    "The first of them: a name may be empty.",
    "SELECT name, at, until FROM shelf WHERE space = :space ORDER BY name LIMIT :limit",
)
SPACES: Final = Query("Spaces that have something in them.", "SELECT space FROM spaces WHERE items > 0")
ROOM: Final = Query("How much a space has.", "SELECT items, size FROM spaces WHERE space = :space")
COUNTS: Final = Query(
    "How many jobs each service has in each state.",
    "SELECT service, state, jobs FROM tallies WHERE jobs <> 0 ORDER BY service, state",
)
OPEN_SIZES: Final = Query(
    "How large the next unfinished jobs are, so that not too many bodies are read at once.",
    "SELECT seq, size_in FROM jobs WHERE finished IS NULL AND seq > :after ORDER BY seq LIMIT :limit",
)
OPEN_SIZE: Final = Query(
    "The same for all of them together: mostly they are small enough.",
    "SELECT max(seq), sum(size_in) FROM (SELECT seq, size_in FROM jobs "
    "WHERE finished IS NULL AND seq > :after ORDER BY seq LIMIT :limit) AS open",
)
OPEN_JOBS: Final = Query(
    "Unfinished jobs with their requests, in order of arrival.",
    f"SELECT {WITH_REQUEST} FROM jobs JOIN requests ON requests.seq = jobs.seq "
    "WHERE jobs.finished IS NULL AND jobs.seq > :after AND jobs.seq <= :last ORDER BY jobs.seq",
)
SWEEPABLE: Final = Query(
    "Services that have finished jobs which are not dead letters.",
    "SELECT DISTINCT service FROM tallies WHERE jobs > 0 AND state IN ('done', 'failed', 'cancelled')",
)
EXPIRED: Final = BulkInsert(
    "Finished jobs of these services that ended before their retention time.",
    _columns("service:bytes cutoff"),
    "SELECT jobs.id FROM v JOIN jobs ON jobs.service = v.service AND jobs.finished <= v.cutoff "
    "WHERE jobs.finished IS NOT NULL AND jobs.state <> 'dead' LIMIT {limit}",
    _columns("id:text"),
)

# What `find` can ask, by the names of Filter's fields. The second half of a state's condition names its
# index.
CONDITIONS: Final[dict[str, str]] = {
    "service": "service = :service",
    "client": "client = :client",
    "key": "key = :key AND key IS NOT NULL",
    "parent": "parent = :parent AND parent IS NOT NULL",
    "since": "submitted >= :since",
    "before": "submitted < :before",
}
OPEN_STATE: Final = "state = :state AND finished IS NULL"
ENDED_STATE: Final = "state = :state AND finished IS NOT NULL"
BEHIND: Final = {True: "seq > :behind", False: "seq < :behind"}  # oldest first, newest first


def find(conditions: list[str], oldest_first: bool) -> Query:
    """A list of jobs."""
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    order = "ASC" if oldest_first else "DESC"
    return Query(
        "Jobs without their requests, page by page.",
        f"SELECT {JOB} FROM jobs {where} ORDER BY seq {order} LIMIT :limit",
    )
