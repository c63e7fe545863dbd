"""Check coverage's JSON report against the floors of this project: `coverage_floor.py REPORT`.

Prints one line per package and fails if the source as a whole, or any module of a compiled package, is below its
floor. The compiled packages have a floor per module because every message passes through them, and because a module
that its own tests do not reach is easily hidden by the average.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import Any

TOTAL_FLOOR = 90.0
MODULE_FLOOR = 85.0
COMPILED = ("wire", "core", "dialects")
ROOT = "polydomo"


def package_of(module: str) -> str:
    """Return the first folder below `polydomo/`, or an empty string for a module directly in it."""
    parts = PurePosixPath(module).parts
    below = parts[parts.index(ROOT) + 1 :]
    return below[0] if len(below) > 1 else ""


def percent(covered: int, statements: int) -> float:
    """Return the covered share in percent; a module without statements is fully covered."""
    return 100.0 * covered / statements if statements else 100.0


def by_package(report: dict[str, Any]) -> dict[str, float]:
    """Return the covered percentage of each package."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for module, data in report["files"].items():
        total = sums[package_of(module)]
        total[0] += data["summary"]["covered_lines"]
        total[1] += data["summary"]["num_statements"]
    return {package: percent(*total) for package, total in sorted(sums.items())}


def below_floor(report: dict[str, Any]) -> list[str]:
    """Return one message for each floor that is not reached."""
    messages = []
    totals = report["totals"]
    total = percent(totals["covered_lines"], totals["num_statements"])
    if total < TOTAL_FLOOR:
        messages.append(f"total: {total:.1f} % is below {TOTAL_FLOOR:.0f} %")
    for module, data in sorted(report["files"].items()):
        covered = percent(data["summary"]["covered_lines"], data["summary"]["num_statements"])
        if package_of(module) in COMPILED and covered < MODULE_FLOOR:
            messages.append(f"{module}: {covered:.1f} % is below {MODULE_FLOOR:.0f} %")
    return messages


def main(arguments: list[str]) -> int:
    """Print the table and the shortfalls; return the exit code."""
    report = json.loads(Path(arguments[0]).read_text())
    for package, covered in by_package(report).items():
        print(f"{package or '(top level)':<14}{covered:6.1f} %")
    messages = below_floor(report)
    for message in messages:
        print(f"coverage too low: {message}", file=sys.stderr)
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
