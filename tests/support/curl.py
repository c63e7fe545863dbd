"""curl as a peer: `make test` installs it where possible (tools/system_packages.sh)."""

from __future__ import annotations

import shutil

import pytest


def need_curl() -> None:
    """Skip the test, with a warning, if curl is missing."""
    if shutil.which("curl") is None:
        pytest.skip("NO CURL HERE: that it alone is a client and a worker is not proved; install curl")
