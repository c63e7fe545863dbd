"""Tests that the generated pages are up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT


def test_the_reference_is_up_to_date(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "tools" / "make_reference.py", tmp_path], check=True, cwd=tmp_path)
    made = sorted(tmp_path.glob("*.md"))
    assert made
    for page in made:
        kept = (ROOT / "docs" / "reference" / page.name).read_text(encoding="utf-8")
        assert kept == page.read_text(encoding="utf-8"), (
            f"docs/reference/{page.name} is out of date: run python tools/make_reference.py"
        )
