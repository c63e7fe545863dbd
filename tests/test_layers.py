"""Tests of the architecture: imports point downwards only, and pure packages stay pure."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "polydomo"
MODULES = sorted(SOURCE.rglob("*.py"))

# Peers in the tests, never dependencies of the product.
FOREIGN = {"zmq", "pynng", "majortomo", "norfab", "pytest", "hypothesis"}

# On every message's path: no logging, no sockets, no clock, no randomness; time and the rest are arguments.
HOT_ROOMS = ("wire", "core", "dialects")
IMPURE = {
    "asyncio",
    "logging",
    "os",
    "pathlib",
    "random",
    "secrets",
    "selectors",
    "signal",
    "socket",
    "sqlite3",
    "ssl",
    "structlog",
    "subprocess",
    "threading",
    "time",
    "uuid",
    "uvloop",
    "warnings",
}

# The SDK's test kit may import pytest.
MAY_KNOW_PYTEST = {"sdk/pytest_plugin.py", "sdk/testing.py"}


def imported(path: Path) -> Iterator[str]:
    """Yield the top-level names of all imports in a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def test_imports_point_downwards_only() -> None:
    """The contracts are in pyproject.toml."""
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command; lint_imports_command()",
    ]
    done = subprocess.run([*command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_imports_other_peoples_implementations(path: Path) -> None:
    allowed = {"pytest"} if str(path.relative_to(SOURCE)) in MAY_KNOW_PYTEST else set()
    assert not set(imported(path)) & (FOREIGN - allowed)


@pytest.mark.parametrize(
    "path",
    [path for room in HOT_ROOMS for path in sorted((SOURCE / room).rglob("*.py"))],
    ids=lambda path: str(path.relative_to(SOURCE)),
)
def test_the_hot_rooms_are_pure(path: Path) -> None:
    assert not set(imported(path)) & IMPURE
