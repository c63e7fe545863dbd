"""Compiles the hot rooms with mypyc when POLYDOMO_COMPILE=1 (`make wheel`); otherwise a plain Python build.

The same source runs both ways. Only `wire`, `dialects` and `core` are compiled: they are on every message's path,
and they are written in the plain, fully typed Python that mypyc understands.
"""

import os
from pathlib import Path

from setuptools import setup

HOT_ROOMS = ("wire", "core", "dialects")


def extensions() -> list:
    if os.environ.get("POLYDOMO_COMPILE") != "1":
        return []
    from mypyc.build import mypycify

    files = sorted(
        str(path)
        for room in HOT_ROOMS
        for path in Path("src/polydomo", room).rglob("*.py")
        if path.name != "__init__.py"
    )
    return mypycify(files, opt_level="3", debug_level="0")


setup(ext_modules=extensions())
