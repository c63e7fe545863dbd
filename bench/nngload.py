"""Loader of nngload.c: real NNG peers, from the library in pynng, without Python in the data path.

Run as a program it takes nngload.c's options.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pynng

from harness import HERE, BenchError, Generator, cache_folder

SOURCE = HERE / "nngload.c"


def find_generator() -> Generator:
    """Return the generator, built on first use."""
    library()
    return Generator("nngload", (sys.executable, str(HERE / "nngload.py")))


def library() -> Path:
    """Build the library if necessary. Its name contains the source's hash, so that only a changed source is built."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise BenchError(
            "the load of nngload.c needs a C compiler (cc, gcc or clang); try --generator python"
        )
    built = cache_folder() / f"nngload-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]}.so"
    if not built.exists():
        unfinished = built.with_name(f"{built.name}.{os.getpid()}")
        command = [compiler, "-O2", "-Wall", "-shared", "-fPIC", "-o", unfinished, SOURCE, "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise BenchError(f"nngload.c does not compile:\n{done.stderr}")
        unfinished.replace(built)  # atomic: two runs at once may both build it
    return built


def main() -> int:
    words = [word.encode() for word in sys.argv]
    argv = (ctypes.c_char_p * len(words))(*words)
    nng = os.fsencode(pynng._nng.__file__)
    code: int = ctypes.CDLL(str(library())).nngload(ctypes.c_char_p(nng), len(words), argv)
    return code


if __name__ == "__main__":
    sys.exit(main())
