"""The contents of a report as plain data, computed from the gold tables by Spark, small enough for one page.

`report_data` returns dictionaries and lists of text, numbers and None, which JSON can represent; every list of rows can
also be written as CSV. Times are text in ISO 8601, in UTC.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from polydomo.pipeline.anomalies import THRESHOLD, Day, anomalies
from polydomo.pipeline.plan import Plan
from polydomo.pipeline.tables import rollup, service_minutes
from polydomo.safe_text import safe_cell

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Progress = Callable[[float, str], None]
Rows = list[dict[str, Any]]

# Maximum lengths of the longer lists.
MOST_CLIENTS: Final = 20
MOST_OUTAGES: Final = 50
MOST_ANOMALIES: Final = 50

_ERRORS: Final = ("failed", "dead", "refused")

# The lists of rows in a report, in the order of the report.
SECTIONS: Final = (
    "services",
    "traffic",
    "latency",
    "outages",
    "anomalies",
    "utilisation",
    "clients",
    "slo",
    "memo",
    "dialects",
    "capacity",
)


def report_data(
    tables: Mapping[str, DataFrame],
    *,
    begin: date | None = None,
    end: date | None = None,
    plan: Plan | None = None,
    threshold: float = THRESHOLD,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Compute the report from tables by name (for example `polydomo.spark.tables()`), from `begin` to `end` inclusive.

    `plan`: result of the planner, for the section on capacity.
    """
    tell = progress or (lambda _share, _text: None)
    steps: list[tuple[str, Callable[[], Rows]]] = []
    minutes = within_days(tables["service_minute"], begin, end)
    daily: Rows = []

    def latency() -> Rows:
        columns = [f"{of}_{rank}" for of in ("total", "wait", "run") for rank in ("p50", "p95", "p99")]
        found = rollup.days(minutes).select(
            "day", "service", "jobs", _errors().alias("errors"), "retries", "memo_hits", *columns
        )
        daily.extend(_rows(found.orderBy("day", "service")))
        return daily

    steps = [
        ("latency", latency),
        ("services", lambda: _services(minutes)),
        ("traffic", lambda: _traffic(minutes)),
        ("outages", lambda: _outages(within_days(tables["outages"], begin, end))),
        ("utilisation", lambda: _utilisation(within_days(tables["worker_minute"], begin, end))),
        ("clients", lambda: _clients(within_days(tables["client_day"], begin, end))),
        ("slo", lambda: _slo(within_days(tables["slo"], begin, end))),
        ("memo", lambda: _memo(within_days(tables["memo_savings"], begin, end))),
        ("dialects", lambda: _dialects(within_days(tables["dialect_mix"], begin, end))),
    ]
    found: dict[str, Any] = {}
    for number, (name, step) in enumerate(steps):
        tell(number / len(steps), name)
        found[name] = step()
    found["anomalies"] = _anomalies(daily, found["traffic"], threshold)
    found["capacity"] = [] if plan is None else _capacity(plan)
    found["plan"] = (
        None
        if plan is None
        else {
            name: getattr(plan, name)
            for name in ("target", "percentile", "window", "load", "speed", "credit")
        }
    )
    found["totals"] = _totals(found)
    days = sorted({row["day"] for row in daily})
    made = datetime.now(UTC).isoformat(timespec="seconds")
    tell(1.0, "done")
    head = {"made": made, "begin": days[0] if days else None, "end": days[-1] if days else None}
    return (
        head | {"totals": found["totals"], "plan": found["plan"]} | {name: found[name] for name in SECTIONS}
    )


def to_csv(rows: Rows) -> str:
    """Return rows as CSV with a header; empty text if there are none. Spreadsheet formulas are escaped."""
    if not rows:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: safe_cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _services(minutes: DataFrame) -> Rows:
    """Return each service over the whole time; percentiles from the merged sketches of all its minutes."""
    start = F.lit(datetime(1970, 1, 1, tzinfo=UTC)).cast("timestamp")
    merged = service_minutes.merge(minutes.withColumns({"minute": start, "day": F.to_date(start)}))
    ranks = [f"{of}_{rank}" for of in ("total", "wait", "run") for rank in ("p50", "p95", "p99")]
    return _rows(
        merged.select(
            "service",
            "jobs",
            "done",
            *_ERRORS,
            "cancelled",
            "retries",
            "memo_hits",
            "error_rate",
            "run_s",
            "bytes_in",
            "bytes_out",
            *ranks,
        ).orderBy(F.desc("jobs"), "service")
    )


def _traffic(minutes: DataFrame) -> Rows:
    hour = F.date_trunc("hour", "minute")
    found = minutes.groupBy(hour.alias("hour"), "service").agg(
        F.sum("jobs").alias("jobs"),
        F.sum(_errors()).alias("errors"),
        F.round(F.sum("waiting_s") / 3600, 4).alias("queue"),
    )
    return _rows(found.orderBy("hour", "service"))


def _outages(pieces: DataFrame) -> Rows:
    found = rollup.outages(pieces).where("what = 'service'").orderBy(F.desc("failures"), "name")
    columns = ("name AS service", "start", "end", "duration_s", "failures", "jobs", "lost")
    return _rows(found.selectExpr(*columns).limit(MOST_OUTAGES))


def _utilisation(minutes: DataFrame) -> Rows:
    """Return the average number of busy workers, and the number of workers, per service and hour."""
    hourly = minutes.groupBy("service", F.date_trunc("hour", "minute").alias("hour")).agg(
        (F.sum("busy_s") / 3600).alias("busy"), F.count_distinct("worker").alias("workers")
    )
    columns = ("service", "hour", F.round("busy", 4).alias("busy"), "workers")
    return _rows(hourly.select(*columns).orderBy("service", "hour"))


def _clients(days: DataFrame) -> Rows:
    found = days.groupBy("principal", "client").agg(
        F.sum("jobs").alias("jobs"),
        F.sum(_errors()).alias("errors"),
        F.round(F.sum("run_s"), 3).alias("run_s"),
        F.round(F.sum("wait_s"), 3).alias("wait_s"),
        F.sum("bytes_in").alias("bytes_in"),
        F.sum("bytes_out").alias("bytes_out"),
    )
    return _rows(found.orderBy(F.desc("run_s"), F.desc("jobs"), "client").limit(MOST_CLIENTS))


def _slo(days: DataFrame) -> Rows:
    found = days.groupBy("service", "objective_s", "objective_share").agg(
        F.sum("jobs").alias("jobs"),
        F.sum("good").alias("good"),
        F.count(F.lit(1)).alias("days"),
        F.sum(F.col("kept").cast("int")).alias("days_kept"),
    )
    attained = F.try_divide("good", "jobs")
    allowed = F.col("jobs") * (1 - F.col("objective_share"))
    return _rows(
        found.select(
            "*",
            attained.alias("attainment"),
            (attained >= F.col("objective_share")).alias("kept"),
            F.try_divide(F.col("jobs") - F.col("good"), allowed).alias("budget_used"),
        ).orderBy("attainment", "service")
    )


def _memo(days: DataFrame) -> Rows:
    found = days.groupBy("service").agg(
        F.sum("hits").alias("hits"),
        F.sum("misses").alias("misses"),
        F.round(F.sum("saved_s"), 3).alias("saved_s"),
        F.sum("bytes_out").alias("bytes_out"),
    )
    rate = F.try_divide("hits", F.col("hits") + F.col("misses"))
    return _rows(
        found.where("hits > 0").select("*", rate.alias("hit_rate")).orderBy(F.desc("saved_s"), "service")
    )


def _dialects(days: DataFrame) -> Rows:
    found = days.groupBy("dialect_in", "dialect_out").agg(
        F.sum("jobs").alias("jobs"),
        F.sum("bytes_in").alias("bytes_in"),
        F.sum("bytes_out").alias("bytes_out"),
    )
    return _rows(found.orderBy(F.desc("jobs"), "dialect_in", "dialect_out"))


def _anomalies(daily: Rows, traffic: Rows, threshold: float) -> Rows:
    """Find anomalies. The first and the last day are used only if their first and last hours have jobs: a ledger that
    begins at noon has few jobs on that day without being anomalous."""
    hours = sorted({row["hour"] for row in traffic})
    odd = set()
    if hours and hours[0][11:13] > "03":
        odd.add(hours[0][:10])
    if hours and hours[-1][11:13] < "20":
        odd.add(hours[-1][:10])
    days = [
        Day(
            row["service"],
            date.fromisoformat(row["day"]),
            row["jobs"],
            row["errors"],
            row["total_p95"],
            row["day"] not in odd,
        )
        for row in daily
    ]
    return [
        {
            "service": found.service,
            "day": found.day.isoformat(),
            "what": found.what,
            "value": found.value,
            "usual": found.usual,
            "score": found.score,
        }
        for found in anomalies(days, threshold)[:MOST_ANOMALIES]
    ]


def _capacity(plan: Plan) -> Rows:
    windows = {(row.service, row.workers): row for row in plan.rows if row.window == plan.window}
    found = []
    for need in plan.needs:
        row = windows.get((need.service, need.workers)) if need.workers is not None else None
        found.append(
            {
                "service": need.service,
                "workers": need.workers,
                "seen": need.seen,
                "wait": need.wait,
                "fewer": need.fewer,
                "utilisation": row.utilisation if row is not None else None,
                "jobs": need.jobs,
            }
        )
    return found


def _totals(found: dict[str, Any]) -> dict[str, Any]:
    services: Rows = found["services"]

    def total(name: str) -> int:
        return sum(row[name] or 0 for row in services)

    jobs = total("jobs")
    errors = sum(total(name) for name in _ERRORS)
    return {
        "services": len(services),
        "jobs": jobs,
        "done": total("done"),
        "errors": errors,
        "error_rate": errors / jobs if jobs else None,
        "retries": total("retries"),
        "memo_hits": total("memo_hits"),
        "run_s": round(sum(row["run_s"] or 0.0 for row in services), 3),
        "bytes_in": total("bytes_in"),
        "bytes_out": total("bytes_out"),
        "outages": len(found["outages"]),
    }


def _errors() -> Any:
    return F.col("failed") + F.col("dead") + F.col("refused")


def within_days(rows: DataFrame, begin: date | None, end: date | None) -> DataFrame:
    """Return the rows of these days, the last one included."""
    if begin is not None:
        rows = rows.where(F.col("day") >= F.lit(begin))
    return rows if end is None else rows.where(F.col("day") <= F.lit(end))


def _rows(frame: DataFrame) -> Rows:
    return [{name: _plain(value) for name, value in row.asDict().items()} for row in frame.collect()]


def _plain(value: Any) -> Any:
    """Convert a value to a JSON type."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or UTC).astimezone(UTC).isoformat()
    return value.isoformat() if isinstance(value, date) else value
