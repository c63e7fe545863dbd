"""The completeness of a bill of materials."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))  # a folder of scripts, not a package

sbom = importlib.import_module("sbom")

BILL = {
    "metadata": {"component": {"name": "polydomo", "version": "0.1.0"}},
    "components": [
        {"name": "typing_extensions", "version": "4.16.0"},
        {"name": "PyYAML", "version": "6.0.3"},
    ],
}


def test_a_bill_lists_the_package_itself_and_all_others() -> None:
    installed = [("polydomo", "0.1.0"), ("typing-extensions", "4.16.0"), ("pyyaml", "6.0.3")]
    assert sbom.missing_from(BILL, installed) == []


def test_a_missing_package_and_another_version_are_noticed() -> None:
    installed = [("polydomo", "0.2.0"), ("PyYAML", "6.0.3"), ("cbor2", "5.7.0")]
    assert sbom.missing_from(BILL, installed) == ["cbor2 5.7.0", "polydomo 0.2.0"]
