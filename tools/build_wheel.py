"""Builds of the package into dist/: the wheel with its hot packages compiled by mypyc, and the source distribution.

Works on a copy of the tree, so that C files and shared objects are never next to their source (a stale one would be
imported instead). Without a C compiler the wheel is plain Python: the same files, uncompiled and slower; a warning is
printed, because that is rarely intended.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("src", "setup.py", "pyproject.toml", "README.md", "LICENSE")


def compiler() -> str | None:
    """Return the C compiler that this Python would use, if it exists."""
    names = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[:1]
    return next((name for name in (*names, "cc", "gcc", "clang") if shutil.which(name)), None)


def build(out: Path) -> Path:
    """Build the wheel and return its path."""
    found = compiler()
    if found is None:
        print("!! no C compiler found: building a PLAIN wheel without compiled modules", file=sys.stderr)
    environment = {**os.environ, "POLYDOMO_COMPILE": "1" if found else "0"}
    if found:
        environment.setdefault("CC", found)
    return _build("--wheel", "polydomo-*.whl", out, environment)


def build_sdist(out: Path) -> Path:
    """Build the source distribution and return its path."""
    return _build("--sdist", "polydomo-*.tar.gz", out, {**os.environ, "POLYDOMO_COMPILE": "0"})


def _build(kind: str, pattern: str, out: Path, environment: dict[str, str]) -> Path:
    """Run `python -m build` on a copy of the tree; replace older files of the same kind in `out`."""
    with tempfile.TemporaryDirectory(prefix="polydomo-build-") as folder:
        for part in PARTS:
            source = ROOT / part
            ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")
            if source.is_dir():
                shutil.copytree(source, Path(folder, part), ignore=ignore)
            else:
                shutil.copy(source, folder)
        out.mkdir(parents=True, exist_ok=True)
        for old in out.glob(pattern):
            old.unlink()
        log = Path(folder, "log")
        with log.open("wb") as stream:
            done = subprocess.run(
                [sys.executable, "-m", "build", kind, "--no-isolation", "--outdir", str(out), folder],
                env=environment,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        if done.returncode:
            sys.exit("\n".join(log.read_text(errors="replace").splitlines()[-40:]))
    return next(out.glob(pattern))


if __name__ == "__main__":
    print(build(ROOT / "dist"))
