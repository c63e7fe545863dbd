"""Loader of nngload.c: real NNG peers, from the library in pynng, without Python in the data path.

Run as a program it takes nngload.c's options.
"""

from __future__ import annotations

import ctypes
import os
import sys

import pynng

from harness import HERE, Generator, build_library

SOURCE = HERE / "nngload.c"


def find_generator() -> Generator:
    """Return the generator, built on first use."""
    build_library(SOURCE)
    return Generator("nngload", (sys.executable, str(HERE / "nngload.py")))


def main() -> int:
    words = [word.encode() for word in sys.argv]
    argv = (ctypes.c_char_p * len(words))(*words)
    nng = os.fsencode(pynng._nng.__file__)
    code: int = ctypes.CDLL(str(build_library(SOURCE))).nngload(ctypes.c_char_p(nng), len(words), argv)
    return code


if __name__ == "__main__":
    sys.exit(main())
