"""`polydomo roles`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import here

TOML = """\
[roles.resizer]
serve = ["resize"]

[roles.shop]
call = ["resize", "mail.*@eu-*"]
observe = ["*"]

[principals]
worker-1 = ["resizer"]
"shop-*" = ["shop"]
"""


@pytest.fixture(autouse=True)
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("polydomo.toml").write_text(TOML)


def roles(*words: str) -> tuple[int, str]:
    done = here("roles", *words)
    return done.exit_code, done.stdout + done.stderr


def check(*words: str) -> tuple[int, Any]:
    done = here("roles", "check", *words, "--json")
    return done.exit_code, json.loads(done.stdout)


def test_ls_shows_what_each_role_grants_and_who_has_it() -> None:
    code, shown = roles()
    (line,) = [line for line in shown.splitlines() if line.startswith("shop ")]
    assert (code, line.split(maxsplit=1)[1].split("  ")[0]) == (
        0,
        "call: resize, mail.*@eu-*; observe: *",
    )
    assert "observe, operate, read, cancel: *" in shown
    assert "shop-*" in line
    assert "polydomo.toml:5" in line
    rows = {row["role"]: row for row in json.loads(here("roles", "ls", "--json").stdout)}
    assert rows["resizer"] == {
        "role": "resizer",
        "built_in": False,
        "grants": {"serve": ["resize"]},
        "principals": ["worker-1"],
        "source": "polydomo.toml:2",
    }
    assert rows["admin"]["built_in"]
    assert "off" not in shown


def test_check_says_which_role_grants_it_and_where_that_stands() -> None:
    code, shown = roles("check", "shop-7", "call", "mail.send", "--worker", "eu-1")
    assert code == 0
    assert "shop-7 may call mail.send at the worker eu-1" in shown
    assert "the role shop grants call mail.*@eu-* (polydomo.toml:5)" in shown
    assert "shop-* has the role (polydomo.toml:10)" in shown
    code, value = check("worker-1", "serve", "resize")
    assert (code, value["allowed"]) == (0, True)
    assert value["granted_by"] == [
        {
            "role": "resizer",
            "grant": "resize",
            "grant_source": "polydomo.toml:2",
            "principal": "worker-1",
            "principal_source": "polydomo.toml:9",
        }
    ]


def test_check_says_what_would_grant_it() -> None:
    code, shown = roles("check", "ann", "call", "resize")
    assert code == 1
    assert "ann may not call resize (has no role)" in shown
    assert 'this would grant it: [principals] ann = ["shop"]' in shown
    code, value = check("worker-1", "call", "resize")
    assert (code, value["allowed"], value["has"]) == (1, False, {"resizer": "worker-1"})
    assert value["advice"] == '[principals] worker-1 = ["resizer", "shop"]'


def test_following_the_advice_grants_it(tmp_path: Path) -> None:
    assert check("shop-7", "serve", "resize")[0] == 1
    advice = check("shop-7", "serve", "resize")[1]["advice"]
    Path("polydomo.toml").write_text(TOML + advice.removeprefix("[principals] ") + "\n")
    assert check("shop-7", "serve", "resize")[0] == 0
    assert check("shop-7", "call", "resize")[0] == 0


def test_without_a_service_it_is_about_the_broker() -> None:
    assert check("shop-7", "observe")[0] == 0
    code, value = check("shop-7", "administer")
    assert (code, value["advice"]) == (1, '[principals] shop-7 = ["admin"]')


def test_mistakes_are_explained() -> None:
    code, shown = roles("check", "ann", "cal", "resize")
    assert code == 2
    assert "'cal' is none of call, serve" in shown
    Path("polydomo.toml").write_text('[principals]\nann = ["shp"]')
    code, shown = roles()
    assert code == 2
    assert "no such role" in shown


def test_roles_that_are_off_allow_everything() -> None:
    Path("polydomo.toml").write_text(TOML + '[security]\nroles = "off"')
    code, shown = roles("check", "ann", "administer")
    assert code == 0
    assert "roles are off" in shown
    assert "roles are off" in roles("ls")[1]
    code, value = check("ann", "administer")
    assert (code, value["roles_apply"], value["granted_by"]) == (0, False, [])
