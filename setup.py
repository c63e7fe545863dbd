"""Build of the package: with the hot packages compiled by mypyc if POLYDOMO_COMPILE=1 (`make wheel`), else plain.

The same source runs both ways. Only `wire`, `dialects` and `core` are compiled: every message passes through them,
and they are written in the plain, fully typed Python that mypyc understands.
"""

import os
from pathlib import Path

from setuptools import setup

HOT_PACKAGES = ("wire", "core", "dialects")


def extensions() -> list:
    if os.environ.get("POLYDOMO_COMPILE") != "1":
        return []
    from mypyc.build import mypycify

    files = sorted(
        str(path)
        for package in HOT_PACKAGES
        for path in Path("src/polydomo", package).rglob("*.py")
        if path.name != "__init__.py"
    )
    return mypycify(files, opt_level="3", debug_level="0")


setup(ext_modules=extensions())
