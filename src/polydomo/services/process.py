"""Resource usage of this process."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

_SELF = Path("/proc/self")


class ProcessUsage:
    """Usage since the process started; `cpu_percent` is measured since the previous `show`."""

    def __init__(self) -> None:
        self._started = self._measured_at = time.monotonic()
        self._cpu_time = time.process_time()

    def show(self) -> dict[str, Any]:
        """Return the usage under the names of norfab's monitoring."""
        now, cpu_time = time.monotonic(), time.process_time()
        percent = 100.0 * (cpu_time - self._cpu_time) / max(now - self._measured_at, 0.001)
        self._measured_at, self._cpu_time = now, cpu_time
        return {
            "cpu_percent": round(percent, 1),
            "memory_rss_mbyte": round(resident_size() / 1024 / 1024, 3),
            "uptime_seconds": int(now - self._started),
            "open_file_descriptors": _count(_SELF / "fd"),
            "tcp_sockets": None,
            "threads": _count(_SELF / "task") or threading.active_count(),
        }


def resident_size() -> int:
    """Return the resident memory in bytes; where there is no procfs, its maximum so far."""
    try:
        return int((_SELF / "statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        maximum = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return maximum if sys.platform == "darwin" else maximum * 1024


def _count(folder: Path) -> int | None:
    try:
        return len(os.listdir(folder))
    except OSError:
        return None
