"""What is installed here: compiled or plain, which event loop, which libraries. Loads none of it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import pkgutil
from pathlib import Path

import polydomo

# The rooms that mypyc compiles (setup.py).
HOT_ROOMS = ("core", "wire", "dialects")
# Seconds between a source and what was compiled from it that say nothing: installing takes a while.
STALE = 60


def hot_modules() -> dict[str, str]:
    """Name → file of every module in the hot rooms."""
    found = {}
    for room in HOT_ROOMS:
        folders = [str(Path(root, room)) for root in polydomo.__path__]
        for module in pkgutil.walk_packages(folders, f"polydomo.{room}."):
            spec = None if module.ispkg else importlib.util.find_spec(module.name)
            if spec is not None and spec.origin:
                found[module.name] = spec.origin
    return found


def compiled() -> bool:
    """Does the core run as mypyc's machine code? (`make wheel`; otherwise it is plain Python.)"""
    spec = importlib.util.find_spec("polydomo.core.broker")
    return spec is not None and is_compiled(spec.origin or "")


def is_compiled(origin: str) -> bool:
    """Is a module's file machine code?"""
    return bool(origin) and not origin.endswith((".py", ".pyc"))


def is_stale(origin: str) -> bool:
    """An extension that shadows a newer source: an editable install that was compiled in place once."""
    library = Path(origin)
    source = library.with_name(library.name.split(".")[0] + ".py")
    return source.exists() and source.stat().st_mtime > library.stat().st_mtime + STALE


def loop_name() -> str:
    """Whose event loop a broker runs on."""
    return "asyncio" if importlib.util.find_spec("uvloop") is None else "uvloop"


def library_version(name: str) -> str:
    """Empty: it is not there."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
