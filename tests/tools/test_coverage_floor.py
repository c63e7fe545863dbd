"""The floors that `make coverage` enforces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools.coverage_floor import below_floor, by_package, main


def report(**modules: tuple[int, int]) -> dict[str, Any]:
    """Return a report with (covered, statements) for each module; `core__job` is `core/job.py`."""
    files = {
        f"src/polydomo/{name.replace('__', '/')}.py": {
            "summary": {"covered_lines": covered, "num_statements": statements}
        }
        for name, (covered, statements) in modules.items()
    }
    sums = [sum(column) for column in zip(*modules.values(), strict=True)]
    return {"files": files, "totals": {"covered_lines": sums[0], "num_statements": sums[1]}}


def test_a_well_covered_tree_reaches_every_floor() -> None:
    assert below_floor(report(core__job=(90, 100), sdk__client=(95, 100))) == []


def test_exactly_the_floor_is_enough() -> None:
    assert below_floor(report(core__job=(85, 100), sdk__client=(95, 100))) == []


def test_the_total_has_a_floor() -> None:
    assert below_floor(report(sdk__client=(89, 100))) == ["total: 89.0 % is below 90 %"]


@pytest.mark.parametrize("package", ["wire", "core", "dialects"])
def test_each_module_of_a_compiled_package_has_a_floor(package: str) -> None:
    found = below_floor(report(**{f"{package}__part": (84, 100), "sdk__client": (990, 1000)}))
    assert found == [f"src/polydomo/{package}/part.py: 84.0 % is below 85 %"]


def test_modules_in_subfolders_count_for_their_package() -> None:
    assert by_package(report(wire__zmtp__frames=(1, 2), wire__cbor=(2, 2))) == {"wire": 75.0}
    assert len(below_floor(report(dialects__mdp__session=(0, 1), sdk__client=(99, 99)))) == 1


def test_one_badly_covered_module_elsewhere_is_accepted() -> None:
    assert below_floor(report(web__pages=(0, 10), sdk__client=(990, 990))) == []


def test_a_module_without_statements_is_covered() -> None:
    assert below_floor(report(core____init__=(0, 0), errors=(10, 10))) == []


def test_the_exit_code_tells_whether_a_floor_was_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "coverage.json"
    path.write_text(json.dumps(report(core__job=(10, 10), errors=(10, 10))))
    assert main([str(path)]) == 0
    assert capsys.readouterr().out == "(top level)    100.0 %\ncore           100.0 %\n"
    path.write_text(json.dumps(report(core__job=(5, 10))))
    assert main([str(path)]) == 1
    assert "core/job.py: 50.0 % is below 85 %" in capsys.readouterr().err
