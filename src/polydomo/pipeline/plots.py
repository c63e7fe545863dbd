"""The report's plots: SVG in the colours of the surrounding page, light or dark.

matplotlib draws text and grid lines in two placeholder colours, which are then replaced by the page's `currentColor`
and `--line`. Text stays text, in the page's font.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib import dates as untyped_dates
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

Rows = list[dict[str, Any]]
dates: Any = untyped_dates  # no type hints

# Seven colours that are distinct on white and on black, also for colour-blind readers; the last is for all others.
COLOURS: Final = ("#4c8bf5", "#e8913a", "#3fa66b", "#c2549d", "#8a6de0", "#b59a2f", "#8b949e")
BAD: Final = "#e5534b"
_INK: Final = "#010203"
_LINE: Final = "#040506"
TOP: Final = len(COLOURS) - 1  # services with a colour of their own

_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a dollar sign in a name is literal
    "font.size": 9,
    "font.family": "sans-serif",
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _LINE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": _LINE,
    "grid.linewidth": 0.6,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "xtick.labelcolor": _INK,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
}


def traffic(rows: Rows) -> str:
    """Plot jobs per hour, stacked by service, and failures below."""
    return _drawn("traffic", (9.6, 3.4), lambda figure: _traffic(figure, rows))


def latency(rows: Rows, busiest: list[str]) -> str:
    """Plot p50, p95 and p99 of each of the busiest services by day, as small multiples."""
    return _drawn(
        "latency", (9.6, 1.0 + 1.7 * -(-len(busiest) // 3)), lambda figure: _latency(figure, rows, busiest)
    )


def heat(rows: Rows) -> str:
    """Plot busy workers by service and hour, as a share of the largest number of workers."""
    height = 0.9 + 0.24 * len({row["service"] for row in rows})
    return _drawn("heat", (9.6, height), lambda figure: _heat(figure, rows))


def capacity(rows: Rows) -> str:
    """Plot the required number of workers next to the observed one."""
    return _drawn("capacity", (9.6, 0.8 + 0.26 * len(rows)), lambda figure: _capacity(figure, rows))


def _drawn(name: str, size: tuple[float, float], draw: Callable[[Figure], None]) -> str:
    # Ids in an image are derived from the salt: those of several images in one page must differ.
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        # The reader's fonts draw the text: glyphs missing from ours do not matter.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor").replace(_LINE, "var(--line)")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Element ids (axes_1, text_3) repeat in all images and are not referenced.
    svg = re.sub(r' id="[\w.]+_\d+"', "", svg)
    # Let the image fill the page's width.
    for side in ("width", "height"):
        svg = re.sub(rf'(<svg[^>]*?) {side}="[^"]*"', r"\1", svg, count=1)
    return svg.replace("<svg", f'<svg role="img" aria-label="{name}"', 1)


def _traffic(figure: Figure, rows: Rows) -> None:
    hours = sorted({row["hour"] for row in rows})
    place = {hour: index for index, hour in enumerate(hours)}
    total: dict[str, int] = {}
    for row in rows:
        total[row["service"]] = total.get(row["service"], 0) + row["jobs"]
    names = sorted(total, key=lambda name: (-total[name], name))
    top = names[:TOP]
    stacks = np.zeros((len(top) + (len(names) > len(top)), len(hours)))
    errors = np.zeros(len(hours))
    for row in rows:
        stacks[top.index(row["service"]) if row["service"] in top else len(top), place[row["hour"]]] += row[
            "jobs"
        ]
        errors[place[row["hour"]]] += row["errors"]
    when = [datetime.fromisoformat(hour) for hour in hours]
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    labels = [*top, *(["others"] if len(names) > len(top) else [])]
    colours = [*COLOURS[: len(top)], COLOURS[-1]][: len(labels)]
    above.stackplot(when, stacks, labels=labels, colors=colours, linewidth=0)
    above.set_ylabel("jobs / hour")
    figure.legend(loc="outside upper center", ncols=len(labels), handlelength=1)
    below.fill_between(when, errors, color=BAD, linewidth=0)
    below.set_ylabel("errors")
    below.set_ylim(bottom=0)
    _numbers(above)
    _numbers(below)
    _days(below)


def _latency(figure: Figure, rows: Rows, busiest: list[str]) -> None:
    lines = -(-len(busiest) // 3)
    axes = figure.subplots(lines, 3, sharex=True, squeeze=False).ravel()
    for axis, name, colour in zip(axes, busiest, COLOURS * 2, strict=False):
        some = [row for row in rows if row["service"] == name and row["total_p95"] is not None]
        when = [datetime.fromisoformat(row["day"]) for row in some]
        for rank, width, alpha in (("p50", 1.0, 0.55), ("p95", 1.6, 1.0), ("p99", 0.8, 0.55)):
            axis.plot(
                when, [row[f"total_{rank}"] for row in some], color=colour, linewidth=width, alpha=alpha
            )
        axis.set_title(name, loc="left", fontsize=9)
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(lambda value, _: _seconds(value))
        axis.yaxis.set_minor_formatter("")
        _days(axis)
    for axis in axes[len(busiest) :]:
        axis.set_visible(False)


def _heat(figure: Figure, rows: Rows) -> None:
    hours = sorted({row["hour"] for row in rows})
    place = {hour: index for index, hour in enumerate(hours)}
    names = sorted({row["service"] for row in rows}, reverse=True)
    there: dict[str, int] = {}
    for row in rows:
        there[row["service"]] = max(there.get(row["service"], 1), row["workers"])
    values = np.zeros((len(names), len(hours)))
    for row in rows:
        values[names.index(row["service"]), place[row["hour"]]] = row["busy"] / there[row["service"]]
    axis = figure.subplots()
    when = [datetime.fromisoformat(hour) for hour in hours]
    colours = mpl.colors.LinearSegmentedColormap.from_list("busy", ["#4c8bf508", "#4c8bf5", BAD])
    mesh = axis.pcolormesh(
        dates.date2num(when),
        np.arange(len(names)),
        values,
        cmap=colours,
        vmin=0,
        vmax=1,
        shading="nearest",
        rasterized=True,
    )
    axis.set_yticks(np.arange(len(names)), names)
    axis.grid(False)
    figure.colorbar(mesh, ax=axis, format=lambda value, _: f"{value:.0%}", aspect=30, pad=0.01)
    axis.xaxis_date()
    _days(axis)


def _capacity(figure: Figure, rows: Rows) -> None:
    some = sorted(
        (row for row in rows if row["workers"] is not None), key=lambda row: (row["workers"], row["service"])
    )
    axis = figure.subplots()
    place = np.arange(len(some))
    needed = [row["workers"] for row in some]
    axis.barh(place, needed, height=0.6, color=COLOURS[0], label="required")
    seen = [(at, row["seen"]) for at, row in zip(place, some, strict=True) if row["seen"]]
    if seen:
        axis.plot(
            *zip(*[(number, at) for at, number in seen], strict=True),
            "o",
            color=COLOURS[1],
            markersize=5,
            label="observed",
        )
        figure.legend(loc="outside upper right", ncols=2, handlelength=1)
    axis.set_yticks(place, [row["service"] for row in some])
    axis.grid(True, axis="x")
    axis.grid(False, axis="y")
    axis.set_xlim(left=0)


def _numbers(axis: Any) -> None:
    axis.yaxis.set_major_formatter(
        lambda value, _: f"{value / 1000:g} k" if value >= 10_000 else f"{value:g}"
    )


def _days(axis: Any) -> None:
    locator = dates.AutoDateLocator(minticks=3, maxticks=8)
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    axis.margins(x=0)


def _seconds(value: float) -> str:
    return f"{value * 1000:g} ms" if value < 1 else f"{value:g} s"
