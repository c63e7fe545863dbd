"""Long fuzz runs: `python -m tests.fuzz TARGET --seconds 60 [--seed 1]`. Without a target: all in turn.

Deterministic by seed. An input that violates its target's property is shown and written to a file, and the
exit code is 1; `python -m tests.fuzz TARGET --input FILE` tries it again. Inputs that reach new code (by the
executed lines of the package, where it is not compiled) are added to the pool that is mutated.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import polydomo
from tests.fuzz.mutate import Mutator
from tests.fuzz.targets import TARGETS, Target

SOURCE = str(Path(polydomo.__file__).parent)
WATCHED_EVERY = 8  # tracing is slow: only one input in this many is traced for new lines


class Lines:
    """Executed lines of the package."""

    def __init__(self) -> None:
        self.seen: set[tuple[CodeType, int]] = set()

    @contextmanager
    def watching(self) -> Iterator[None]:
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(None)

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(SOURCE) else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        self.seen.add((frame.f_code, frame.f_lineno))
        return self._line


def fuzz(name: str, target: Target, seconds: float, seed: int) -> int:
    """Return the number of inputs tried, or -1 if one violated a property."""
    mutator = Mutator(target.seeds, target.words, seed)
    lines = Lines()
    end = time.monotonic() + seconds
    tried = 0
    for data in target.seeds:
        target.run(data)
    while time.monotonic() < end:
        data = mutator.next()
        tried += 1
        try:
            if tried % WATCHED_EVERY:
                target.run(data)
            else:
                known = len(lines.seen)
                with lines.watching():
                    target.run(data)
                if len(lines.seen) > known:
                    mutator.keep(data)
        except Exception:
            path = Path(f"fuzz-{name}-{seed}.bin")
            path.write_bytes(data)
            traceback.print_exc()
            print(f"\n{name}: broken by input {tried} of seed {seed}: {data!r}\nin {path.resolve()}")
            return -1
    print(f"{name}: {tried} inputs, {len(lines.seen)} lines, {len(mutator.pool)} kept")
    return tried


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", nargs="?", choices=sorted(TARGETS), help="which parser; all if left out")
    parser.add_argument("--seconds", type=float, default=10.0, help="per target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--input", type=Path, help="try this file once")
    parser.add_argument("--list", action="store_true", help="the targets and what each promises")
    options = parser.parse_args()
    if options.list:
        for name, target in TARGETS.items():
            print(f"{name}: {' '.join((target.run.__doc__ or '').split())}")
        return 0
    if options.input:
        if not options.target:
            parser.error("--input needs a target")
        TARGETS[options.target].run(options.input.read_bytes())
        return 0
    names = [options.target] if options.target else list(TARGETS)
    broken = [name for name in names if fuzz(name, TARGETS[name], options.seconds, options.seed) < 0]
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
