"""Loader of curveload.c: libzmq's peers with CURVE, from the library in pyzmq, without Python in the data path.

Run as a program it takes curveload.c's options.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys
from pathlib import Path

import zmq

from harness import HERE, BenchError, Generator, build_library

SOURCE = HERE / "curveload.c"


def find_generator(server_key: str) -> Generator:
    """Return the generator for a broker with this public key, built on first use."""
    build_library(SOURCE)
    libzmq()
    return Generator("curveload", (sys.executable, str(HERE / "curveload.py"), "-p", server_key))


def libzmq() -> str:
    """Return the libzmq that pyzmq has brought, or the system's."""
    bundled = next(Path(zmq.__file__).parent.parent.glob("pyzmq.libs/libzmq*"), None)
    found = str(bundled) if bundled else ctypes.util.find_library("zmq")
    if not found or not zmq.has("curve"):
        raise BenchError("the load of curveload.c needs pyzmq with a libzmq that has CURVE")
    return found


def main() -> int:
    words = [word.encode() for word in sys.argv]
    argv = (ctypes.c_char_p * len(words))(*words)
    library = ctypes.CDLL(str(build_library(SOURCE)))
    code: int = library.curveload(ctypes.c_char_p(os.fsencode(libzmq())), len(words), argv)
    return code


if __name__ == "__main__":
    sys.exit(main())
