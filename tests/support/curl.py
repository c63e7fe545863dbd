"""curl, the peer that everybody has: `make test` installs it where it may (tools/system_packages.sh)."""

from __future__ import annotations

import shutil

import pytest


def need_curl() -> None:
    """Skip, loudly, where there is none."""
    if shutil.which("curl") is None:
        pytest.skip("NO CURL HERE: that it alone is a client and a worker is not proved; install curl")
