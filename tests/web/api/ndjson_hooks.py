"""For schemathesis, which loads this by itself (`SCHEMATHESIS_HOOKS`): how NDJSON is sent, and that nobody waits for
ever for the jobs of a service that nobody offers."""

from __future__ import annotations

from typing import Any

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def ndjson(context: Any, value: Any) -> bytes:
    return str(value).encode(errors="replace")


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    if case.operation.path.endswith("/bulk"):
        query = dict(case.query or {})
        try:
            float(query.get("deadline", 1))
        except (TypeError, ValueError):
            return  # it is wrong on purpose
        case.query = query | {"deadline": 0.3}
