"""Heap: give freed memory back to the system.

The C library keeps what is freed between blocks that are still in use, and it is right to: taking fresh pages from the
system for each large message makes the broker spend twice the time on it. But after many large messages at once most of
the heap may be such gaps, for good. So the process is looked at now and then, and when its gaps have grown by a small
part of `limits.memory` they are given back.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

# How much memory that nobody holds may come together before it is given back: one part in so many of the limit, and
# at the least and the most.
GAPS_SHARE: Final = 64
GAPS_MIN: Final = 8 * 1024 * 1024
GAPS_MAX: Final = 64 * 1024 * 1024

_STATM: Final = Path("/proc/self/statm")


class Heap:
    """The process's memory. `resident` returns its size and `trim` gives back the gaps."""

    def __init__(
        self, resident: Callable[[], int] | None = None, trim: Callable[[], object] | None = None
    ) -> None:
        self._resident = resident or resident_size
        self._trim = trim or _system_trim()
        self._floor = self._resident()  # memory beside what is held, when it was last trimmed

    def inspect(self, held: int, limit: int) -> None:
        """Trim if the process has grown by much more than `held`, the bytes that it is known to hold; it may hold
        `limit` of them. Called every second."""
        gaps = min(max(limit // GAPS_SHARE, GAPS_MIN), GAPS_MAX)
        if self._resident() - held >= self._floor + gaps:
            self._trim()
            self._floor = self._resident() - held


def resident_size() -> int:
    """Return the bytes of memory that this process has; 0 where the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _system_trim() -> Callable[[], object]:
    """Return glibc's malloc_trim, or something that does nothing."""
    trim: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return (lambda: trim(0)) if trim is not None else (lambda: None)
