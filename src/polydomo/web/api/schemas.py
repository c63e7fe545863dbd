"""JSON Schemas and examples of response documents, by name. They are used for OpenAPI only, not for validation."""

from __future__ import annotations

from typing import Any

from polydomo.core.counts import MEANINGS

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
SECONDS: Schema = {"type": "number"}
STRINGS: Schema = {"type": "array", "items": TEXT}
ANYTHING: Schema = {"type": "object", "additionalProperties": True}


def nullable(schema: Schema) -> Schema:
    """Return the schema of a value that may be null."""
    return {**schema, "type": [schema["type"], "null"]}


def time(text: str) -> Schema:
    """Return the schema of a time."""
    return {"type": "string", "format": "date-time", "description": text}


def record(text: str, /, **fields: Schema) -> Schema:
    """Return the schema of an object with these members, all required."""
    return {"type": "object", "description": text, "properties": fields, "required": list(fields)}


def page(what: str, row: str, following: Schema) -> Schema:
    """Return the schema of a paginated list."""
    rows = {"type": "array", "items": ref(row)}
    text = "the next page; null: this is the last one"
    return record(f"{what}, paginated", **{what: rows, "next": {**following, "description": text}})


def ref(name: str) -> Schema:
    """Return a reference to one of SCHEMAS."""
    return {"$ref": f"#/components/schemas/{name}"}


_COUNTS: dict[str, Schema] = {name: {**COUNT, "description": what} for name, what in MEANINGS.items()}
_SERVICE_ROW = {
    "name": TEXT,
    "workers": COUNT,
    "idle": {**COUNT, "description": "workers that can take a job now"},
    "waiting": {**COUNT, "description": "jobs that wait for a worker"},
    "paused": FLAG,
    "running": COUNT,
    **_COUNTS,
}
_MEMO_ROW = {
    "entries": {**COUNT, "description": "results in memory; more may be on disk"},
    "bytes": COUNT,
    "hits": {**COUNT, "description": "requests that were answered from the cache"},
    "joined": {**COUNT, "description": "requests that joined an identical one in progress"},
    "misses": {**COUNT, "description": "requests that were dispatched to a worker"},
    "saved_seconds": {**SECONDS, "description": "worker time that hits and joined requests saved"},
}
_STORED_ROW = {
    "id": TEXT,
    "service": TEXT,
    "state": TEXT,
    "reason": {**TEXT, "description": "why it has no result"},
    "message": TEXT,
    "client": TEXT,
    "dialect": TEXT,
    "worker": TEXT,
    "attempts": COUNT,
    "key": nullable(TEXT),
    "target": nullable(TEXT),
    "priority": {"type": "integer"},
    "bytes_in": COUNT,
    "bytes_out": COUNT,
    "submitted": time("when it came"),
    "dispatched": nullable(time("when its latest attempt began")),
    "finished": nullable(time("when it ended")),
}
POLICY = {
    "wait": nullable(SECONDS),
    "timeout": nullable(SECONDS),
    "retries": COUNT,
    "queue": COUNT,
    "liveness_busy": COUNT,
    "durable": FLAG,
    "backoff": nullable(SECONDS),
    "grace": nullable(SECONDS),
    "retention": nullable(SECONDS),
    "ageing": nullable(SECONDS),
    "memo": FLAG,
    "memo_ttl": nullable(SECONDS),
    "memo_bytes": COUNT,
}

SCHEMAS: dict[str, Schema] = {
    "Problem": {
        **record(
            "An error (RFC 9457). Additional members depend on the reason.",
            type={**TEXT, "description": "`/problems/REASON`, where it is explained"},
            title=TEXT,
            status={"type": "integer"},
            detail={**TEXT, "description": "what went wrong in this request"},
            reason={**TEXT, "description": "a stable identifier for programs"},
        ),
        "required": ["type", "title", "status"],
        "additionalProperties": True,
    },
    "ProblemKind": record("A kind of problem", reason=TEXT, status=COUNT, title=TEXT, meaning=TEXT),
    "ProblemKinds": record("All kinds of problems", problems={"type": "array", "items": ref("ProblemKind")}),
    "ServiceRow": record("A service and its counters", **_SERVICE_ROW),
    "Services": page("services", "ServiceRow", nullable(TEXT)),
    "Service": record(
        "A service, its settings and its workers",
        **_SERVICE_ROW,
        worker_names=STRINGS,
        policy=record("Settings for its jobs, times in seconds; null: no limit", **POLICY),
        memo={"oneOf": [ref("MemoBooks"), {"type": "null"}]},
    ),
    "MemoBooks": record("Size and use of a result cache", **_MEMO_ROW),
    "Memo": record(
        "A service's result cache",
        name=TEXT,
        on={**FLAG, "description": "whether results are cached now"},
        **_MEMO_ROW,
    ),
    "Forgotten": record("Number of results that were removed from the cache", name=TEXT, forgotten=COUNT),
    "Paused": record("Whether a service is paused", name=TEXT, paused=FLAG),
    "Broker": {
        **record(
            "The broker: its counters and addresses",
            name=TEXT,
            version=TEXT,
            uptime=SECONDS,
            services=COUNT,
            workers=COUNT,
            clients=COUNT,
            submitted={**COUNT, "description": "accepted + refused + undecided jobs"},
            accepted={**COUNT, "description": "accepted jobs"},
            active={**COUNT, "description": "jobs that have not ended"},
            undecided={**COUNT, "description": "active jobs that are being stored, not accepted yet"},
            memory={**COUNT, "description": "bytes of active jobs"},
            **_COUNTS,
            unlisted=record("Counts of services that are no longer listed", **_COUNTS),
            strays={**COUNT, "description": "replies to attempts that were over"},
            draining={**FLAG, "description": "whether the broker is stopping"},
        ),
        "additionalProperties": True,
    },
    "WorkerRow": record(
        "A worker",
        name=TEXT,
        dialect=TEXT,
        services=STRINGS,
        state={"enum": ["idle", "busy", "late"]},
        holds={**COUNT, "description": "jobs that it runs now"},
        credit={**COUNT, "description": "jobs that it may run at once"},
        done=COUNT,
        seen={**SECONDS, "description": "seconds since its last sign of life"},
        since={**SECONDS, "description": "seconds since it registered"},
    ),
    "Workers": page("workers", "WorkerRow", nullable(COUNT)),
    "ClientRow": record(
        "A client",
        name=TEXT,
        dialect=TEXT,
        unanswered={"type": "integer"},
        bytes={"type": "integer"},
        submitted=COUNT,
        held={**FLAG, "description": "reading is paused because of too many unanswered jobs"},
        since=SECONDS,
    ),
    "Clients": page("clients", "ClientRow", nullable(COUNT)),
    "StoredJobRow": record("A durable job", **_STORED_ROW),
    "StoredJobs": page("jobs", "StoredJobRow", nullable(TEXT)),
    "StoredJob": {
        **record(
            "A durable job with all stored data",
            **_STORED_ROW,
            request={**STRINGS, "description": "its frames: text, or hex for other bytes"},
            history={"type": "array", "items": ANYTHING, "description": "its attempts"},
            events={"type": "array", "items": ANYTHING},
            result={"description": "frames; by worker if there were several; null: no result"},
        ),
    },
    "Sent": record("A job that was queued again", id=TEXT, sent=FLAG),
    "InventoryFiles": record(
        "Sources of the inventory",
        file=TEXT,
        files=STRINGS,
        workers={**ANYTHING, "description": "by name or pattern: files, or (here)"},
        services={**ANYTHING, "description": "by name: number of assigned resources"},
        error={**TEXT, "description": "why the newest files are not in use"},
    ),
    "Inventory": {**ANYTHING, "description": "merged contents of the files"},
    "Reloaded": record("Workers whose inventory has changed", changed=STRINGS),
    "FolderEntry": record(
        "A file or a folder", name=TEXT, kind={"enum": ["file", "folder"]}, size_bytes=COUNT, modified=SECONDS
    ),
    "Folder": record("A folder", path=TEXT, entries={"type": "array", "items": ref("FolderEntry")}),
    "FileDetails": record(
        "A file", path=TEXT, size_bytes=COUNT, sha256=TEXT, md5hash=TEXT, modified=SECONDS, etag=TEXT
    ),
    "Health": {
        **record(
            "The broker's health",
            status=TEXT,
            warning={**TEXT, "description": "jobs that were lost before the start"},
        ),
        "required": ["status"],
    },
    "Event": {
        **record("An event of a stream", id=TEXT, event=TEXT, data=TEXT),
        "required": ["data"],
        "additionalProperties": True,
    },
}

_EXAMPLE_COUNTS = {**dict.fromkeys(MEANINGS, 0), "done": 41}
_EXAMPLE_SERVICE = {
    "name": "echo",
    "workers": 2,
    "idle": 1,
    "waiting": 0,
    "paused": False,
    "running": 1,
    **_EXAMPLE_COUNTS,
}
_EXAMPLE_MEMO = {"entries": 3, "bytes": 812, "hits": 120, "joined": 4, "misses": 3, "saved_seconds": 61.5}
_EXAMPLE_DEAD = {
    "id": "01K3ZK5B9W3V8Y2T6C4N1Q0R7X",
    "service": "echo",
    "state": "dead",
    "reason": "retries-exhausted",
    "message": "all 3 attempts were lost",
    "client": "10.0.0.7",
    "dialect": "http",
    "worker": "w1",
    "attempts": 3,
    "key": None,
    "target": None,
    "priority": 0,
    "bytes_in": 7,
    "bytes_out": 0,
    "submitted": "2026-01-31T12:00:00.000000Z",
    "dispatched": "2026-01-31T12:00:01.000000Z",
    "finished": "2026-01-31T12:01:01.000000Z",
}
_EXAMPLE_POLICY = {
    "wait": 60.0,
    "timeout": 60.0,
    "retries": 2,
    "queue": 100_000,
    "liveness_busy": 0,
    "durable": False,
    "backoff": 0.0,
    "grace": 10.0,
    "retention": 86400.0,
    "ageing": 10.0,
    "memo": True,
    "memo_ttl": 86400.0,
    "memo_bytes": 67_108_864,
}

_EXAMPLE_PROBLEM = {
    "reason": "queue-full",
    "status": 429,
    "title": "Queue full",
    "meaning": "The service has as many waiting jobs as it may have.",
}

EXAMPLES: dict[str, Any] = {
    "ProblemKind": _EXAMPLE_PROBLEM,
    "ProblemKinds": {"problems": [_EXAMPLE_PROBLEM]},
    "Services": {"services": [_EXAMPLE_SERVICE], "next": None},
    "Service": {
        **_EXAMPLE_SERVICE,
        "worker_names": ["w1", "w2"],
        "policy": _EXAMPLE_POLICY,
        "memo": _EXAMPLE_MEMO,
    },
    "Memo": {"name": "echo", "on": True, **_EXAMPLE_MEMO},
    "Forgotten": {"name": "echo", "forgotten": 3},
    "Paused": {"name": "echo", "paused": True},
    "Broker": {
        "name": "polydomo",
        "version": "0.1.0",
        "uptime": 12.5,
        "services": 1,
        "workers": 2,
        "clients": 1,
        "submitted": 42,
        "accepted": 42,
        "active": 1,
        "undecided": 0,
        "memory": 409,
        **_EXAMPLE_COUNTS,
        "unlisted": dict.fromkeys(_EXAMPLE_COUNTS, 0),
        "strays": 0,
        "draining": False,
        "zmq": ["tcp://127.0.0.1:5555"],
    },
    "Workers": {
        "workers": [
            {
                "name": "w1",
                "dialect": "http",
                "services": ["echo"],
                "state": "idle",
                "holds": 0,
                "credit": 1,
                "done": 41,
                "seen": 0.2,
                "since": 60.0,
            }
        ],
        "next": None,
    },
    "Clients": {
        "clients": [
            {
                "name": "10.0.0.7",
                "dialect": "http",
                "unanswered": 1,
                "bytes": 9,
                "submitted": 42,
                "held": False,
                "since": 60.0,
            }
        ],
        "next": None,
    },
    "StoredJobs": {"jobs": [_EXAMPLE_DEAD], "next": None},
    "StoredJob": {
        **_EXAMPLE_DEAD,
        "request": ["hello"],
        "history": [{"attempt": 3, "worker": "w1", "outcome": "lost"}],
        "events": [],
        "result": None,
    },
    "Sent": {"id": _EXAMPLE_DEAD["id"], "sent": True},
    "InventoryFiles": {
        "file": "inventory.yaml",
        "files": ["inventory.yaml"],
        "workers": {"nornir-*": ["nornir/common.yaml"]},
        "services": {},
        "error": "",
    },
    "Inventory": {"service": "nornir", "hosts": {"r1": {"hostname": "10.0.0.1"}}},
    "Reloaded": {"changed": ["nornir-1"]},
    "Folder": {
        "path": "templates",
        "entries": [{"name": "base.j2", "kind": "file", "size_bytes": 812, "modified": 1769860800.0}],
    },
    "FileDetails": {
        "path": "templates/base.j2",
        "size_bytes": 812,
        "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "md5hash": "098f6bcd4621d373cade4e832627b4f6",
        "modified": 1769860800.0,
        "etag": "1f-32c-18",
    },
    "Health": {"status": "ok"},
}
