"""The report: one self-contained HTML file.

    report(tables(spark), "report.html")

`report_data` (report_data.py) queries the tables; `page` renders HTML, with plots from plots.py. The file loads nothing
and contains no script, so it works offline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from polydomo._version import __version__
from polydomo.pipeline.plan import Plan
from polydomo.pipeline.report_data import SECTIONS, Progress, report_data, to_csv

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["page", "report", "report_data", "write_csv"]

Rows = list[dict[str, Any]]

SHOWN_SERVICES: Final = 6  # with their own plot

_CSS: Final = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #59636e; --line: #d9dee4; --page: #fff; --card: #f6f8fa;
  --good: #1a7f37; --bad: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #343b44; --page: #0d1117;
  --card: #161b22; --good: #3fb950; --bad: #f85149; } }
* { box-sizing: border-box }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 1060px;
  margin: 0 auto; padding: 32px 20px 64px }
h1 { font-size: 26px; margin: 0 } h2 { font-size: 18px; margin: 44px 0 4px }
p { color: var(--soft); margin: 4px 0 12px; max-width: 75ch } svg { width: 100%; height: auto; display: block }
svg text { font-family: system-ui, sans-serif !important }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 10px; margin: 22px 0 }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px }
.tile b { display: block; font-size: 21px; font-weight: 600 } .tile span { color: var(--soft); font-size: 13px }
.wide { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; font-variant-numeric: tabular-nums }
th { text-align: left; color: var(--soft); font-weight: 500; border-bottom: 1px solid var(--line); white-space: nowrap }
th, td { padding: 5px 12px 5px 0 } td { border-bottom: 1px solid var(--line) }
.n { text-align: right } .good { color: var(--good) } .bad { color: var(--bad); font-weight: 600 }
nav { margin: 10px 0 0; font-size: 13.5px } nav a { margin-right: 14px } a { color: inherit }
footer { margin-top: 48px; color: var(--soft); font-size: 13px }
@media print { body { max-width: none } h2 { break-after: avoid } svg, tr { break-inside: avoid } }
"""


class _Column(NamedTuple):
    """A column of an HTML table. `show` formats a value; `mark` returns a class for the cell."""

    heading: str
    name: str
    show: Callable[[Any], str]
    mark: Callable[[dict[str, Any]], str] | None = None


def report(
    tables: Mapping[str, DataFrame],
    path: str | Path,
    *,
    begin: date | None = None,
    end: date | None = None,
    plan: Plan | None = None,
    csv: str | Path | None = None,
    title: str = "Polydomo",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write the page, and one CSV file per section to the folder `csv` if given. Return the data."""
    data = report_data(tables, begin=begin, end=end, plan=plan, progress=progress)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(data, title), encoding="utf-8")
    if csv is not None:
        write_csv(data, csv)
    return data


def write_csv(data: dict[str, Any], folder: str | Path) -> list[Path]:
    """Write a file for each section that has rows and return the paths."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    found = []
    for name in SECTIONS:
        if data[name]:
            found.append(place / f"{name}.csv")
            found[-1].write_text(to_csv(data[name]), encoding="utf-8")
    return found


def page(data: dict[str, Any], title: str = "Polydomo") -> str:
    """Render the page from the result of `report_data`, or from its JSON."""
    sections = [(name, heading, text) for name, heading, text in _sections(data) if text]
    links = "".join(f'<a href="#{name}">{escape(heading)}</a>' for name, heading, _ in sections)
    body = "".join(
        f'<section id="{name}"><h2>{escape(heading)}</h2>{text}</section>' for name, heading, text in sections
    )
    if not sections:
        body = "<p>There are no jobs in the tables yet: run polydomo spark run to fill them.</p>"
    span = f"{data['begin']} to {data['end']}" if data["begin"] else "nothing yet"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}: {span}</title><style>{_CSS}</style></head><body>"
        f"<h1>{escape(title)}</h1><p>{span}, times in UTC</p>{_tiles(data['totals'])}<nav>{links}</nav>{body}"
        f"<footer>Created {escape(data['made'])} by polydomo {escape(__version__)}.</footer></body></html>\n"
    )


def _sections(data: dict[str, Any]) -> Iterable[tuple[str, str, str]]:
    """Yield name, heading and HTML; sections without HTML are omitted. Plots are drawn only where there is data."""
    if not data["services"]:
        return
    from polydomo.pipeline import plots

    busiest = [row["service"] for row in data["services"][:SHOWN_SERVICES]]
    yield (
        "traffic",
        "Traffic",
        _p("Jobs that ended, per hour; below, those without a result.") + plots.traffic(data["traffic"]),
    )
    yield "services", "Services", _table(data["services"], _SERVICES)
    yield (
        "latency",
        "Latency",
        _p(
            "From submission to the end, by day: p50, p95 (bold) and p99 of the busiest services. Logarithmic."
        )
        + plots.latency(data["latency"], busiest),
    )
    yield (
        "anomalies",
        "Unusual days",
        _p(
            "Compared with the median of the same weekday. The score is the distance in multiples of the usual spread; "
            "scores below 5 are not shown."
        )
        + _table(_with_units(data["anomalies"]), _ANOMALIES)
        if data["anomalies"]
        else _p("None."),
    )
    outages = _p("Failures at most five minutes apart, at least three of them.")
    yield (
        "outages",
        "Outages",
        (outages + _table(data["outages"], _OUTAGES)) if data["outages"] else _p("None."),
    )
    if data["utilisation"]:
        yield (
            "utilisation",
            "Utilisation",
            _p("Share of a service's workers that were busy, hour by hour.")
            + plots.heat(data["utilisation"]),
        )
    if data["capacity"]:
        yield (
            "capacity",
            "Capacity",
            _p(_promise(data["plan"]))
            + plots.capacity(data["capacity"])
            + _table(data["capacity"], _CAPACITY),
        )
    yield "slo", "Objectives", _table(data["slo"], _SLO)
    yield "clients", "Clients", _table(data["clients"], _CLIENTS)
    yield "memo", "Cached results", _table(data["memo"], _MEMO)
    yield "dialects", "Protocols", _table(data["dialects"], _DIALECTS)


def _promise(plan: dict[str, Any]) -> str:
    window = {"all": "over the whole time", "day": "on the busiest day", "hour": "in the busiest hour"}[
        plan["window"]
    ]
    text = (
        f"The smallest number of workers with which {100 * plan['percentile']:.4g} % of the jobs wait at most "
        f"{_seconds(plan['target'])} {window}, by replaying these jobs."
    )
    if plan["load"] != 1:
        text += f" With {plan['load']:g} times the jobs."
    if plan["speed"] != 1:
        text += f" With workers {plan['speed']:g} times as fast."
    return text


def _tiles(totals: dict[str, Any]) -> str:
    shown = (
        (_count(totals["jobs"]), "jobs"),
        (_share(totals["error_rate"]), "without a result"),
        (_count(totals["services"]), "services"),
        (_count(totals["outages"]), "outages"),
        (_count(totals["retries"]), "retries"),
        (_count(totals["memo_hits"]), "from the cache"),
        (_long(totals["run_s"]), "of work"),
    )
    tiles = "".join(f'<div class="tile"><b>{value}</b><span>{name}</span></div>' for value, name in shown)
    return f'<div class="tiles">{tiles}</div>'


def _table(rows: Rows, columns: tuple[_Column, ...]) -> str:
    if not rows:
        return ""
    text = (_text, _moment)
    head = "".join(f"<th{'' if c.show in text else ' class=n'}>{escape(c.heading)}</th>" for c in columns)
    lines = []
    for row in rows:
        cells = []
        for column in columns:
            classes = "" if column.show in text else "n"
            if column.mark is not None:
                classes = f"{classes} {column.mark(row)}".strip()
            cells.append(f'<td class="{classes}">{escape(column.show(row[column.name]))}</td>')
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _p(text: str) -> str:
    return f"<p>{escape(text)}</p>"


# -- values as text


def _text(value: Any) -> str:
    return "–" if value is None else str(value)


def _moment(value: str) -> str:
    return value[:16].replace("T", " ")


def _count(value: Any) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _share(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.2%}" if value < 0.1 or value > 0.99 else f"{value:.1%}"


def _times(value: Any) -> str:
    return "–" if value is None else f"{value:,.2f}×"


def _seconds(value: Any) -> str:
    if value is None:
        return "–"
    if value < 0.0005:
        return "0"
    return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s" if value < 600 else _long(value)


def _long(value: Any) -> str:
    if value is None:
        return "–"
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if value >= 2 * size:
            return f"{value / size:,.1f} {unit}"
    return f"{value:.3g} s"


def _bytes(value: Any) -> str:
    if value is None:
        return "–"
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:,.3g} TiB"


def _with_units(anomalies: Rows) -> Rows:
    """Format the values of anomalies: jobs, shares or seconds."""
    units = {"jobs": ("jobs", _count), "errors": ("errors", _share), "p95": ("p95 latency", _seconds)}
    found = []
    for row in anomalies:
        name, show = units[row["what"]]
        found.append(row | {"what": name, "value": show(row["value"]), "usual": show(row["usual"])})
    return found


_SERVICES: Final = (
    _Column("service", "service", _text),
    _Column("jobs", "jobs", _count),
    _Column("errors", "error_rate", _share, lambda row: "bad" if (row["error_rate"] or 0) > 0.01 else ""),
    _Column("retries", "retries", _count),
    _Column("wait p50", "wait_p50", _seconds),
    _Column("p95", "wait_p95", _seconds),
    _Column("run p50", "run_p50", _seconds),
    _Column("p95", "run_p95", _seconds),
    _Column("total p50", "total_p50", _seconds),
    _Column("p95", "total_p95", _seconds),
    _Column("p99", "total_p99", _seconds),
    _Column("in", "bytes_in", _bytes),
    _Column("out", "bytes_out", _bytes),
)
_OUTAGES: Final = (
    _Column("service", "service", _text),
    _Column("from", "start", _moment),
    _Column("until", "end", _moment),
    _Column("lasted", "duration_s", _long),
    _Column("failures", "failures", _count),
    _Column("jobs lost", "jobs", _count),
    _Column("attempts lost", "lost", _count),
)
_ANOMALIES: Final = (
    _Column("day", "day", _text),
    _Column("service", "service", _text),
    _Column("what", "what", _text),
    _Column("was", "value", _text),
    _Column("usual", "usual", _text),
    _Column("score", "score", lambda value: f"{value:+.1f}"),
)
_CAPACITY: Final = (
    _Column("service", "service", _text),
    _Column("required", "workers", _count),
    _Column(
        "observed",
        "seen",
        _count,
        lambda row: "bad" if row["seen"] and row["workers"] and row["seen"] < row["workers"] else "",
    ),
    _Column("wait", "wait", _seconds),
    _Column("with one fewer", "fewer", _seconds),
    _Column("busy", "utilisation", _share),
    _Column("jobs replayed", "jobs", _count),
)
_SLO: Final = (
    _Column("service", "service", _text),
    _Column("within", "objective_s", _seconds),
    _Column("target", "objective_share", _share),
    _Column("attained", "attainment", _share, lambda row: "good" if row["kept"] else "bad"),
    _Column("days attained", "days_kept", _count),
    _Column("of", "days", _count),
    _Column("error budget used", "budget_used", _times),
)
_CLIENTS: Final = (
    _Column("client", "client", _text),
    _Column("principal", "principal", _text),
    _Column("jobs", "jobs", _count),
    _Column("errors", "errors", _count),
    _Column("workers’ time", "run_s", _long),
    _Column("waited", "wait_s", _long),
    _Column("in", "bytes_in", _bytes),
    _Column("out", "bytes_out", _bytes),
)
_MEMO: Final = (
    _Column("service", "service", _text),
    _Column("cached", "hits", _count),
    _Column("share", "hit_rate", _share),
    _Column("workers’ time saved", "saved_s", _long),
    _Column("bytes", "bytes_out", _bytes),
)
_DIALECTS: Final = (
    _Column("clients’", "dialect_in", _text),
    _Column("workers’", "dialect_out", _text),
    _Column("jobs", "jobs", _count),
    _Column("in", "bytes_in", _bytes),
    _Column("out", "bytes_out", _bytes),
)
