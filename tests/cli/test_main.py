"""The command as a whole: help, version, completion, and the handling of bugs."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import typer

from polydomo import __version__
from polydomo.cli import common, inspect
from polydomo.cli.main import COMMANDS as SPECS
from polydomo.cli.main import app
from polydomo.errors import (
    ConfigError,
    JobFailed,
    PolydomoError,
    Refused,
    Timeout,
    UnknownService,
    Unreachable,
)
from tests.cli.support import here, run

COMMANDS = [
    ["broker"],
    ["device"],
    ["dev"],
    ["worker"],
    ["call"],
    ["status"],
    ["services", "ls"],
    ["workers", "ls"],
    ["clients", "ls"],
    ["jobs", "ls"],
    ["inventory", "ls"],
    ["inventory", "show"],
    ["inventory", "reload"],
    ["inventory", "check"],
    ["files", "ls"],
    ["files", "info"],
    ["files", "get"],
    ["memo", "show"],
    ["memo", "forget"],
    ["admin", "restart"],
    ["admin", "shutdown"],
    ["admin", "disconnect"],
    ["admin", "stats"],
    ["admin", "logs"],
    ["admin", "resources"],
    ["admin", "share-out"],
    *[
        ["spark", word]
        for word in ("run", "backfill", "compact", "plan", "report", "sql", "serve", "doctor", "synth")
    ],
    ["config", "check"],
    ["config", "show"],
    ["roles", "ls"],
    ["roles", "check"],
    *[["keys", word] for word in ("new", "ls", "accept", "reject", "revoke", "show", "invite")],
    *[["tokens", word] for word in ("ls", "new", "revoke")],
    *[["profile", word] for word in ("ls", "add", "use", "show", "env", "rm")],
    *[["audit", word] for word in ("ls", "verify")],
    ["store", "backup"],
    ["store", "check"],
    ["doctor"],
    ["bench"],
    ["demo"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_help(words: list[str]) -> None:
    done = here(*words, "--help")
    assert done.exit_code == 0
    assert f" {' '.join(words)} " in done.stdout


def test_the_help_names_every_command() -> None:
    shown = here("--help").stdout
    assert all(words[0] in shown for words in COMMANDS)
    assert len(SPECS) == len({words[0] for words in COMMANDS}) + 1
    assert not any(name in shown for name, spec in SPECS.items() if spec.hidden)


def test_only_the_wanted_command_is_loaded() -> None:
    code = (
        "import sys; from polydomo.cli.main import app; app(['device', '--help'], standalone_mode=False); "
        "print(sorted(name for name in sys.modules if name.startswith('polydomo.cli.')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "polydomo.cli.device" in done.stderr
    assert "polydomo.cli.spark" not in done.stderr
    assert "polydomo.cli.admin" not in done.stderr


def test_a_command_that_is_not_there_is_met_with_the_nearest() -> None:
    done = here("brokr")
    assert done.exit_code == 2
    assert "broker" in done.stderr


def parameters() -> list[tuple[str, Any]]:
    """Every argument and flag of every command."""
    root: Any = typer.main.get_command(app)
    found = []
    for words in COMMANDS:
        command = root
        for word in words:
            command = command.commands[word]
        found += [(" ".join(words), parameter) for parameter in command.params]
    return found


def test_every_argument_and_flag_has_help() -> None:
    assert [(name, parameter.name) for name, parameter in parameters() if not parameter.help] == []


def test_a_short_flag_means_the_same_everywhere() -> None:
    meanings: dict[str, set[str]] = {}
    for _, parameter in parameters():
        short = [flag for flag in parameter.opts if len(flag) == 2]
        for flag in short:
            meanings.setdefault(flag, set()).add(max(parameter.opts, key=len))
    numbers = meanings.pop("-n")  # how many: of whatever the command is about
    assert numbers == {"--limit", "--requests"}
    assert [flag for flag, names in meanings.items() if len(names) > 1] == []


def test_the_help_promises_only_what_is_there() -> None:
    shown = here("--help").stdout
    assert all(name in shown for name in ("Majordomo", "DagBox", "NORFAB", "WMP", "MemoDB"))


def test_version() -> None:
    assert here("--version").stdout == f"polydomo {__version__}\n"
    assert run("--version").stdout == f"polydomo {__version__}\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PolydomoError("x"), 1),
        (JobFailed("x"), 1),
        (JobFailed("x", reason="expired"), 5),
        (Refused("x"), 1),
        (ConfigError("x"), 2),
        (Unreachable("x"), 3),
        (UnknownService("x"), 4),
        (Timeout("x"), 5),
    ],
)
def test_every_error_has_its_exit_code(
    error: PolydomoError, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(inspect, "_show", fail)
    done = here("status")
    assert done.exit_code == code
    assert done.stderr.startswith("error: x\n")
    assert f"| {code} |" in (common.__doc__ or "")


def test_a_bug_is_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect, "_show", lambda *_, **__: {}["missing"])
    done = here("status")
    assert done.exit_code == 1
    assert done.stderr.splitlines()[0] == "error: KeyError: 'missing'"
    assert "POLYDOMO_DEBUG=1" in done.stderr
    assert "Traceback" in here("status", env={"POLYDOMO_DEBUG": "1"}).stderr


def test_ctrl_c_is_no_error_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(inspect, "_show", interrupted)
    done = here("status")
    assert (done.exit_code, done.stderr) == (130, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_for_each_shell(shell: str) -> None:
    # Typer would rather look for a shell among the processes above it, and there may be none.
    done = run("--show-completion", shell, env={"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"})
    assert done.returncode == 0
    assert "_POLYDOMO_COMPLETE" in done.stdout


def complete(line: str, **env: str) -> list[str]:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_POLYDOMO_COMPLETE": "complete_bash"}
    return run(env=words | env).stdout.split()


def test_commands_are_completed() -> None:
    assert complete("polydomo be") == ["bench"]


def test_services_are_completed_from_the_catalogue(url: str) -> None:
    assert complete("polydomo call c", POLYDOMO_URL=url) == ["count"]
    assert complete("polydomo workers ls --service ", POLYDOMO_URL=url) == ["count", "echo", "upper"]


def test_without_a_broker_nothing_is_completed_and_nothing_is_said() -> None:
    assert complete("polydomo call c", POLYDOMO_URL="mdp://127.0.0.1:1") == []
