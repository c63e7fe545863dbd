"""bench/store.py runs and says what it measured. How fast, is for no test to say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_the_bench_runs(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "bench" / "store.py"
    options = ["--seconds", "0.1", "--outstanding", "20", "--jobs", "300", "--folder", tmp_path]
    done = subprocess.run(
        [sys.executable, script, *options, "--json", tmp_path / "result.json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "group commit" in done.stdout
    result = json.loads((tmp_path / "result.json").read_text())
    assert [(rate["what"], rate["grouped"]) for rate in result["rates"]] == [
        ("accept", False),
        ("accept", True),
        ("whole life", False),
        ("whole life", True),
    ]
    assert all(rate["jobs"] >= 20 for rate in result["rates"])
    assert result["recovery"]["jobs"] == 300
