"""Facts about the installation, found without importing it: compiled modules, event loop, libraries."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import pkgutil
from pathlib import Path

import polydomo

# The packages that mypyc compiles (setup.py).
HOT_PACKAGES = ("core", "wire", "dialects")
# Seconds by which a source may be newer than its extension module: installing takes a while.
STALE = 60


def hot_modules() -> dict[str, str]:
    """Return the names and files of all modules in the hot packages."""
    found = {}
    for package in HOT_PACKAGES:
        folders = [str(Path(root, package)) for root in polydomo.__path__]
        for module in pkgutil.walk_packages(folders, f"polydomo.{package}."):
            spec = None if module.ispkg else importlib.util.find_spec(module.name)
            if spec is not None and spec.origin:
                found[module.name] = spec.origin
    return found


def compiled() -> bool:
    """Return whether the core was compiled with mypyc (`make wheel`) or is plain Python."""
    spec = importlib.util.find_spec("polydomo.core.broker")
    return spec is not None and is_compiled(spec.origin or "")


def is_compiled(origin: str) -> bool:
    """Return whether a module's file is an extension module."""
    return bool(origin) and not origin.endswith((".py", ".pyc"))


def is_stale(origin: str) -> bool:
    """Return whether an extension module shadows a newer source, as after compiling an editable install in place."""
    library = Path(origin)
    source = library.with_name(library.name.split(".")[0] + ".py")
    return source.exists() and source.stat().st_mtime > library.stat().st_mtime + STALE


def loop_name() -> str:
    """Return the name of the broker's event loop."""
    return "asyncio" if importlib.util.find_spec("uvloop") is None else "uvloop"


def library_version(name: str) -> str:
    """Return a library's version; empty if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
