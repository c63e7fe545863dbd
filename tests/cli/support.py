"""Running the command as a person does: in a process of its own, or in this one where nothing is served."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from polydomo.cli.main import app

# Nothing of the developer's own environment decides a test; rich does not wrap.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("POLYDOMO_")} | {
    "COLUMNS": "300"
}


def here(*words: str, env: dict[str, str] | None = None, stdin: str | None = None) -> Any:
    """In this process: quick, for what needs no broker."""
    cleared = {name: None for name in os.environ if name.startswith("POLYDOMO_")}
    return CliRunner().invoke(app, list(words), env={**cleared, "COLUMNS": "300", **(env or {})}, input=stdin)


def run(
    *words: str,
    env: dict[str, str] | None = None,
    stdin: bytes = b"",
    timeout: float = 30,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """`polydomo …` to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "polydomo", *words],
        input=stdin,
        capture_output=True,
        timeout=timeout,
        cwd=cwd,
        env={**CLEAN, **(env or {})},
        check=False,
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    )


def on_a_terminal(*words: str, stdin: bytes = b"", timeout: float = 30) -> str:
    """What `polydomo …` says to a person."""
    near, far = pty.openpty()
    try:
        command = [sys.executable, "-m", "polydomo", *words]
        subprocess.run(command, input=stdin, stdout=far, timeout=timeout, env=CLEAN, check=True)
    finally:
        os.close(far)
    with os.fdopen(near, "rb", buffering=0) as terminal:
        return terminal.read(65536).decode().replace("\r\n", "\n")
