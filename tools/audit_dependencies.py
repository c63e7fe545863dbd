"""Audit of requirements.lock: known vulnerabilities of the versions that CI installs on this Python, with pip-audit.

Exit codes: 0 all packages were looked up and none has a known vulnerability, 1 some have, 3 NOT DONE: the database
cannot be reached, or does not know a package. pip-audit itself passes packages that it could not look up.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
VULNERABLE, NOT_DONE = 1, 3

# The most packages that are named because a database does not know them.
NAMES = 5

# Databases that are asked, one after the other, until one knows all packages.
SERVICES = ("pypi", "osv")


def main() -> int:
    """Ask the databases and print the findings."""
    lines: list[str] = []
    for service in SERVICES:
        code, found = judge(*ask(service))
        lines += [f"{service}: {line}" for line in found]
        if code != NOT_DONE:
            print("\n".join(lines))
            return code
    print("\n".join(lines), file=sys.stderr)
    print(
        "!! the dependencies were NOT AUDITED: no database could be asked about all of them", file=sys.stderr
    )
    return NOT_DONE


def ask(service: str) -> tuple[str, str]:
    """Return pip-audit's report, which is empty if it failed, and its messages."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(ROOT / "requirements.lock")]
    command += ["--disable-pip", "--format", "json", "--progress-spinner", "off"]
    command += ["--vulnerability-service", service]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout, done.stderr


def judge(report: str, messages: str) -> tuple[int, list[str]]:
    """Return the exit code for a report and what to print."""
    try:
        packages: list[dict[str, Any]] = json.loads(report)["dependencies"]
    except (ValueError, KeyError):
        last = messages.strip().splitlines() or ["no report"]
        return NOT_DONE, [last[-1]]
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    lines = [
        f"{package['name']} {package['version']}: {problem['id']}"
        + (
            f", fixed in {', '.join(problem['fix_versions'])}"
            if problem["fix_versions"]
            else ", not fixed yet"
        )
        for package in packages
        for problem in package.get("vulns", ())
    ]
    vulnerable = bool(lines)
    if skipped:
        names = ", ".join(skipped[:NAMES]) + (", …" if len(skipped) > NAMES else "")
        lines.append(f"{len(skipped)} of {len(packages)} packages are not known there: {names}")
    if vulnerable:
        return VULNERABLE, lines
    if skipped or not packages:
        return NOT_DONE, lines or ["no packages in the report"]
    return 0, [f"{len(packages)} packages, no known vulnerability"]


if __name__ == "__main__":
    sys.exit(main())
