"""Output of a run: a table for the terminal, JSON, Markdown and a plot.

Nothing here identifies the machine: the environment is described by what affects the numbers, not by host or
path.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from harness import Broker, Generator, Settings
from results import Ratio, Shape, Summary, notes

FORMAT_VERSION = 1
COLUMNS = ("shape", "broker", "req/s", "p50 µs", "p99 µs", "CPU µs/req", "RSS MiB", "spread")
TABLE_WIDTH = 112  # in a narrower terminal lines wrap, which is better than truncated numbers
RATIO_COLUMNS = ("req/s ×", "CPU ×")


@dataclass(frozen=True)
class Report:
    environment: dict[str, Any]
    settings: Settings
    generator: Generator
    brokers: list[Broker]
    shapes: list[Shape]
    summaries: list[Summary]

    def as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT_VERSION,
            "environment": self.environment,
            "settings": {**asdict(self.settings), "generator": self.generator.name},
            "brokers": {broker.label: dict(broker.info) for broker in self.brokers},
            "shapes": {shape.name: {**asdict(shape), "text": shape.text} for shape in self.shapes},
            "results": [summary.as_json() for summary in self.summaries],
            "notes": notes(self.summaries),
        }


def environment() -> dict[str, Any]:
    """Describe what the numbers depend on; called before the load, so that the load average excludes it."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_model(),
        "cores": _usable_cores(),
        "load_average": [round(value, 2) for value in os.getloadavg()],
    }


def _cpu_model() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or "unknown"


def _usable_cores() -> int:
    # A container often has fewer than the machine.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cells(summary: Summary) -> list[str]:
    return [
        summary.shape,
        summary.broker,
        f"{summary.rps:,.0f}",
        f"{summary.p50_us:,.0f}",
        f"{summary.p99_us:,.0f}",
        f"{summary.cpu_us:.1f}",
        f"{summary.rss_mib:.0f}",
        f"{summary.spread:.0%}" if len(summary.rounds) > 1 else "–",
    ]


def _ratio_cells(ratio: Ratio | None) -> list[str]:
    return [f"{ratio.rps:.2f}", f"{ratio.cpu:.2f}"] if ratio else ["", ""]


def heading(env: Mapping[str, Any], settings: Settings, what: str) -> str:
    load = ", ".join(f"{value:.2f}" for value in env["load_average"])
    return (
        f"{env['date']}, Python {env['python']}, {env['cpu']}, {env['cores']} core(s), load average {load}. "
        f"Medians of {settings.rounds} round(s) × {settings.seconds:g} s, {what}."
    )


def _heading(report: Report) -> str:
    what = f"{report.settings.size}-byte bodies, load from {report.generator.name}"
    return heading(report.environment, report.settings, what)


def _tables(report: Report) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return (title, column names, rows) of the main table and, if measured, of the scale table."""
    plain = [s for s in report.summaries if not _shape(report, s).base]
    tables = [
        (
            "Ratios (×): divided by the yardstick of the same round",
            [*COLUMNS, *RATIO_COLUMNS],
            [[*_cells(s), *_ratio_cells(s.versus_yardstick)] for s in plain],
        )
    ]
    scaled = [s for s in report.summaries if s.versus_base]
    if scaled:
        tables.append(
            (
                "Scale. Ratios (×): divided by the same broker's “many” of the same round",
                [*COLUMNS, *RATIO_COLUMNS],
                [[*_cells(s), *_ratio_cells(s.versus_base)] for s in scaled],
            )
        )
    return tables


def _shape(report: Report, summary: Summary) -> Shape:
    return next(shape for shape in report.shapes if shape.name == summary.shape)


def print_tables(report: Report) -> None:
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    console.print(_heading(report), highlight=False)
    for title, columns, rows in _tables(report):
        print_table(console, title, columns, rows)
    print_notes(console, notes(report.summaries))


def print_table(
    console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], names: int = 2
) -> None:
    """Print a table. The first `names` columns are not numbers; of two, rows with the same first one form a section."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < names else "right", no_wrap=True)
    for number, row in enumerate(rows):
        last = number + 1 == len(rows) or rows[number + 1][0] != row[0]
        table.add_row(*row, end_section=names > 1 and last)
    console.print(table)


def print_notes(console: Console, found: Iterable[str]) -> None:
    for note in found:
        console.print(f"[yellow]note:[/] {note}", highlight=False)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(columns)} |",
        f"| {' | '.join(['---', '---', *['---:'] * (len(columns) - 2)])} |",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def dump_json(result: Mapping[str, Any], path: Path) -> None:
    path.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_json(report: Report, path: Path) -> None:
    dump_json(report.as_json(), path)


def write_markdown(report: Report, path: Path) -> None:
    lines = [_heading(report), ""]
    lines += [f"- **{shape.name}**: {shape.text}" for shape in report.shapes]
    for title, columns, rows in _tables(report):
        lines += ["", f"{title}.", "", *markdown_table(columns, rows)]
    if found := notes(report.summaries):
        lines += ["", *(f"- Note: {note}" for note in found)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_plot(report: Report, path: Path) -> None:
    """Plot grouped bars: requests/s above, CPU per request below; the format follows the file's suffix."""
    import matplotlib  # slow to import, and most runs need no plot

    matplotlib.use("Agg")
    from matplotlib import pyplot

    labels = [broker.label for broker in report.brokers]
    names = [shape.name for shape in report.shapes]
    plt: Any = pyplot  # incomplete type hints
    figure, axes = plt.subplots(2, 1, figsize=(max(7.0, 2.4 * len(names)), 7.5), layout="constrained")
    panels = (
        (axes[0], "requests/s (more is better)", lambda s: s.rps, "{:,.0f}"),
        (axes[1], "broker's CPU µs per request (less is better)", lambda s: s.cpu_us, "{:.1f}"),
    )
    width = 0.8 / len(labels)
    for axis, title, value, text in panels:
        for number, label in enumerate(labels):
            heights = [
                value(s) for name in names for s in report.summaries if (s.broker, s.shape) == (label, name)
            ]
            places = [index + (number - (len(labels) - 1) / 2) * width for index in range(len(names))]
            bars = axis.bar(places, heights, width * 0.92, label=label)
            axis.bar_label(bars, labels=[text.format(height) for height in heights], fontsize=8, padding=2)
        axis.set_title(title, loc="left", fontsize=10)
        axis.set_xticks(range(len(names)), names)
        axis.spines[["top", "right"]].set_visible(False)
        axis.yaxis.set_major_formatter("{x:,.0f}")
        axis.margins(y=0.12)
    axes[0].legend(loc="upper left", frameon=False, fontsize=9)
    env = report.environment
    figure.supxlabel(
        f"{env['cpu']}, {env['cores']} core(s), Python {env['python']}, {env['date'][:10]}", fontsize=8
    )
    # Without a date in the metadata, the same numbers give the same file.
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
