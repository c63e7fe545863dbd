"""requirements.lock: up to date with pyproject.toml, complete, and used by CI."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def entries() -> list[tuple[str, str, list[str]]]:
    """Return name, version and hashes of every entry."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    found = re.findall(
        r"^([A-Za-z0-9._-]+)==([^\s;]+)[^\n]*\\\n((?:    --hash=[^\n]*\n)*)", text, re.MULTILINE
    )
    return [
        (canonicalize_name(name), version, re.findall(r"--hash=(\S+)", hashes))
        for name, version, hashes in found
    ]


def wanted() -> list[Requirement]:
    """Return all direct dependencies, of the build and of all extras."""
    project = PROJECT["project"]
    extras = chain.from_iterable(project["optional-dependencies"].values())
    texts = [*PROJECT["build-system"]["requires"], *project["dependencies"], *extras]
    return [Requirement(text) for text in texts if not text.startswith("polydomo[")]


@pytest.mark.parametrize("requirement", wanted(), ids=str)
def test_every_dependency_is_locked_to_a_version_that_it_allows(requirement: Requirement) -> None:
    locked = [version for name, version, _ in entries() if name == canonicalize_name(requirement.name)]
    assert locked, f"{requirement.name} is not in requirements.lock: run 'make lock'"
    for version in locked:
        assert requirement.specifier.contains(version), f"locked to {version}: run 'make lock'"


def test_every_entry_has_hashes_and_a_version() -> None:
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    begun = [line.split("==")[0].split()[0] for line in text.splitlines() if line[:1].isalnum()]
    assert [canonicalize_name(name) for name in begun] == [name for name, _, _ in entries()]
    for name, _, hashes in entries():
        assert hashes, name
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes), name


def test_nothing_is_taken_from_a_place_of_its_own() -> None:
    """An index or a URL in the file would be asked by everybody who uses it."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^--?(?!hash)", text, re.MULTILINE)


def test_ci_installs_what_is_locked() -> None:
    workflow = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    assert re.search(r'^env:\n  LOCKED: "1"$', workflow, re.MULTILINE)
    assert "pip install" not in workflow
