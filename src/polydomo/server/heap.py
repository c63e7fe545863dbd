"""Heap trimming: freed memory is returned to the system.

The C library keeps freed blocks between blocks that are still in use. That is fast: taking fresh pages from the system
for each large message doubles the time spent on it. But after a burst of large messages most of the heap may stay
unused for good. So the size of the process is checked several times a second, and once the unused part has grown by a
small share of `limits.memory`, the heap is trimmed (10 ms for 2 GiB). Peers that are cut at the limit leave up to 150
MiB of such gaps in a second.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

from polydomo.services.process import resident_size

# Unused memory that triggers a trim: this fraction of the limit, within the two bounds.
GAPS_SHARE: Final = 64
GAPS_MIN: Final = 8 * 1024 * 1024
GAPS_MAX: Final = 64 * 1024 * 1024


class Heap:
    """Memory of the process. `resident` returns its size and `trim` returns unused memory to the system."""

    def __init__(
        self, resident: Callable[[], int] = resident_size, trim: Callable[[], object] | None = None
    ) -> None:
        self._resident = resident
        self._trim = trim or _system_trim()
        self._floor = self._resident()  # memory beyond the held bytes after the last trim

    def inspect(self, held: int, limit: int) -> None:
        """Trim if the process has grown by much more than `held`, the bytes that are in use out of `limit`."""
        gaps = min(max(limit // GAPS_SHARE, GAPS_MIN), GAPS_MAX)
        if self._resident() - held >= self._floor + gaps:
            self._trim()
            self._floor = self._resident() - held


def _system_trim() -> Callable[[], object]:
    """Return glibc's malloc_trim, or a function that does nothing."""
    trim: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return (lambda: trim(0)) if trim is not None else (lambda: None)
