"""deploy/polydomo.service: valid, and hardened as `systemd-analyze security` measures it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "deploy" / "polydomo.service"

# systemd's scale goes from 0 (confined) to 10 (unconfined).
EXPOSURE_MAX = 4.0


def systemd_analyze(*words: str) -> str:
    """Run systemd-analyze on files; it needs no running systemd. Skip, with a warning, if it is missing."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("NO SYSTEMD-ANALYZE HERE: that the unit is hardened is not proved; install systemd")
    done = subprocess.run(
        ["systemd-analyze", "--no-pager", *words], capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout + done.stderr


def test_the_exposure_of_the_unit_is_low() -> None:
    told = systemd_analyze("security", "--offline=true", str(UNIT))
    level = re.search(r"Overall exposure level for polydomo\.service: ([\d.]+)", told)
    assert level is not None, told
    assert float(level[1]) < EXPOSURE_MAX, told


def test_systemd_accepts_every_line_of_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/polydomo/bin/polydomo", "/bin/true"))
    assert not systemd_analyze("verify", "--man=no", str(unit))
    unit.write_text(unit.read_text().replace("ProtectSystem=", "ProtectSistem="))
    assert "ProtectSistem" in systemd_analyze("verify", "--man=no", str(unit))


def test_the_unit_runs_the_broker_and_not_as_root() -> None:
    lines = UNIT.read_text().splitlines()
    assert "ExecStart=/opt/polydomo/bin/polydomo broker --config /etc/polydomo.toml" in lines
    assert "User=polydomo" in lines
