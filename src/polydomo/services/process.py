"""This process as the system sees it."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

_SELF = Path("/proc/self")


class Process:
    """`cpu_percent` is that since the last look, or since the start."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self._looked = self.started
        self._used = time.process_time()

    def figures(self) -> dict[str, Any]:
        """With the names that norfab's monitoring has for them."""
        now, used = time.monotonic(), time.process_time()
        percent = 100.0 * (used - self._used) / max(now - self._looked, 0.001)
        self._looked, self._used = now, used
        return {
            "cpu_percent": round(percent, 1),
            "memory_rss_mbyte": round(_resident() / 1024 / 1024, 3),
            "uptime_seconds": int(now - self.started),
            "open_file_descriptors": _count(_SELF / "fd"),
            "tcp_sockets": None,
            "threads": _count(_SELF / "task") or threading.active_count(),
        }


def _resident() -> int:
    try:
        return int((_SELF / "statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:  # not Linux: the most it ever was
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def _count(folder: Path) -> int | None:
    try:
        return len(os.listdir(folder))
    except OSError:
        return None
