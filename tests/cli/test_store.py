"""`polydomo store backup` and `store check`."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from tests.cli.support import here
from tests.support.broker import BrokerProcess


def test_a_copy_while_the_broker_runs(tmp_path: Path) -> None:
    with BrokerProcess(http=True) as broker:
        url = f"http://{broker.http}/v1/services/nobody/jobs"
        with urllib.request.urlopen(urllib.request.Request(url, b"x", method="POST"), timeout=20):
            pass
        copy = tmp_path / "copy.db"
        done = here("store", "backup", str(copy), "--data", str(broker.data))
        assert done.exit_code == 0, done.stderr
        assert "1 jobs" in done.stdout
        again = here("store", "backup", str(copy), "--data", str(broker.data))
        assert again.exit_code == 6
        assert "--force" in again.stderr
        forced = here("store", "backup", str(copy), "--data", str(broker.data), "--force", "--json")
        assert json.loads(forced.stdout)["jobs"] == 1
        assert here("store", "check", str(copy)).exit_code == 0
        checked = here("store", "check", "--data", str(broker.data), "--json")
        assert json.loads(checked.stdout)["ok"] is True


def test_damage_is_found(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").write_bytes(b"SQLite format 3\0" + bytes(84) + b"\xff" * 8092)
    done = here("store", "check", str(tmp_path / "jobs.db"))
    assert done.exit_code == 1
    assert "damaged" in done.stderr


def test_a_server_is_copied_by_its_own_tool(tmp_path: Path) -> None:
    config = tmp_path / "polydomo.toml"
    config.write_text('[store]\nurl = "postgresql://host/base"\n')
    done = here("store", "backup", str(tmp_path / "copy"), "--config", str(config))
    assert done.exit_code == 6
    assert "pg_dump" in done.stderr
