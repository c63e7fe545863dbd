"""`polydomo doctor`: check this installation, its configuration and a broker."""

from __future__ import annotations

import platform
import resource
import sys
from typing import Any

import msgspec
import typer
from rich.text import Text

import polydomo
from polydomo.cli import broker_client, common, install_info
from polydomo.cli.config import ConfigFile
from polydomo.errors import PolydomoError
from polydomo.redaction import redact
from polydomo.server import config
from polydomo.server.config import Config

OLDEST_PYTHON = (3, 11)
LIBRARIES = ("uvloop", "msgspec", "cbor2", "typer", "rich", "structlog")
# Descriptors that a broker needs besides one per peer: listeners, log, data folder, libraries.
SPARE_FILES = 64
BENCHMARKS = "docs/reference/benchmarks.md"

OK, WARNING, WRONG = "ok", "warning", "wrong"
MARKS = {OK: ("✓", "bold green"), WARNING: ("!", "bold yellow"), WRONG: ("✗", "bold red")}


class Diagnosis(msgspec.Struct):
    """The result of one check."""

    name: str
    status: str
    found: str
    hint: str = ""


def doctor(
    ctx: typer.Context,
    url: common.Url = common.DEFAULT_URL,
    file: ConfigFile = None,
    as_json: common.Json = False,
) -> None:
    """Check Python, build, limits, configuration and broker. Exit code 1: something is wrong."""
    given = common.was_given(ctx, "url")
    found = config.gather(file)
    checks = [
        check_python(),
        *check_libraries(),
        check_loop(),
        check_build(),
        check_open_files(found.settings.limits.connections),
        check_config(found),
        *check_broker(url, given),
    ]
    url = redact(url)
    for check in checks:
        check.found, check.hint = redact(check.found), redact(check.hint)
    wrong = any(check.status == WRONG for check in checks)
    if as_json:
        common.print_json(facts(checks) | {"ok": not wrong, "url": url, "checks": checks})
    else:
        for check in checks:
            common.out.print(check_line(check.status, check.name, check.found, check.hint), soft_wrap=True)
    if wrong:
        raise typer.Exit(common.FAILED)


def facts(checks: list[Diagnosis]) -> dict[str, Any]:
    """Return the fields of the JSON output about this installation."""
    modules, built = _modules()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    status = {check.name: check.status for check in checks}
    return {
        "version": polydomo.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "loop": install_info.loop_name(),
        "compiled": install_info.compiled(),
        "compiled_modules": sorted(built),
        "plain_modules": sorted(modules.keys() - built.keys()),
        "open_files": {"soft": soft, "hard": hard},
        "config_valid": status["configuration"] == OK,
        "broker_reachable": status["broker"] == OK,
        "libraries": {name: install_info.library_version(name) for name in LIBRARIES},
    }


def check_python() -> Diagnosis:
    """Check that Python is new enough."""
    found = f"{platform.python_implementation()} {platform.python_version()}, polydomo {polydomo.__version__}"
    if sys.version_info < OLDEST_PYTHON:
        return Diagnosis("python", WRONG, found, f"at least {'.'.join(map(str, OLDEST_PYTHON))} is needed")
    return Diagnosis("python", OK, found)


def check_libraries() -> list[Diagnosis]:
    """Check that all libraries except uvloop are installed; return the missing ones."""
    missing = [name for name in LIBRARIES if not install_info.library_version(name) and name != "uvloop"]
    return [Diagnosis("libraries", WRONG, f"{name} is missing", "pip install polydomo") for name in missing]


def check_loop() -> Diagnosis:
    """Check for uvloop, with which the broker is faster."""
    if install_info.loop_name() == "uvloop":
        return Diagnosis("event loop", OK, f"uvloop {install_info.library_version('uvloop')}")
    return Diagnosis("event loop", WARNING, "asyncio", "pip install uvloop: the broker is faster with it")


def check_build() -> Diagnosis:
    """Check that all or none of the hot modules are compiled, and none is older than its source."""
    modules, built = _modules()
    stale = sorted(name for name, origin in built.items() if install_info.is_stale(origin))
    if stale:
        hint = "build again (make wheel), or delete the .so files"
        return Diagnosis("build", WARNING, f"compiled, but older than their source: {', '.join(stale)}", hint)
    if not built:
        return Diagnosis("build", OK, f"plain Python (a compiled wheel is faster: {BENCHMARKS})")
    if len(built) < len(modules):
        plain = ", ".join(sorted(modules.keys() - built.keys()))
        return Diagnosis(
            "build", WARNING, f"only {len(built)} of {len(modules)} hot modules are compiled; not {plain}"
        )
    return Diagnosis("build", OK, f"compiled: all {len(built)} hot modules")


def _modules() -> tuple[dict[str, str], dict[str, str]]:
    """Return all hot modules with their files, and the compiled ones among them."""
    modules = install_info.hot_modules()
    return modules, {name: file for name, file in modules.items() if install_info.is_compiled(file)}


def check_open_files(peers: int) -> Diagnosis:
    """Check the hard limit of open files, to which the broker raises the soft one: it needs one per peer."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        return Diagnosis("open files", OK, "unlimited")
    if hard < peers + SPARE_FILES:
        hint = "raise it (ulimit -Hn, LimitNOFILE= in systemd) or lower limits.connections"
        return Diagnosis("open files", WARNING, f"{hard}: too few for limits.connections = {peers}", hint)
    return Diagnosis("open files", OK, f"{hard}")


def check_config(found: Config) -> Diagnosis:
    """Check the configuration file and the environment."""
    if found.problems:
        first, others = found.problems[0], len(found.problems) - 1
        more = f" (and {others} more)" if others else ""
        return Diagnosis("configuration", WRONG, f"{first}{more}", "'polydomo config check' lists everything")
    return Diagnosis(
        "configuration", OK, found.file or ("the environment" if found.sources else "the defaults")
    )


def check_broker(url: str, given: bool) -> list[Diagnosis]:
    """Check that a broker replies and has no trouble. At the default URL a missing broker is only a warning."""
    try:
        row = broker_client.query(url, "broker", timeout=2.0)
    except PolydomoError as error:
        return [Diagnosis("broker", WRONG if given else WARNING, error.message, error.advice)]
    found = f"{row['name']} {row['version']} at {url}, {row['workers']} workers, {row['services']} services"
    if row["version"] != polydomo.__version__:
        checks = [Diagnosis("broker", WARNING, found, f"this command is {polydomo.__version__}")]
    else:
        checks = [Diagnosis("broker", OK, found)]
    for name in ("store", "ledger"):
        trouble = row.get(name, {}).get("trouble")
        if trouble:
            checks.append(Diagnosis(name, WRONG, trouble))
    damage = row.get("store", {}).get("damage")
    if damage:
        checks.append(Diagnosis("store", WRONG, f"jobs were lost: {damage}", "look for disk errors"))
    return checks


def check_line(status: str, name: str, found: str, hint: str) -> Text:
    """Return the line of one check, with a hint below it."""
    mark, style = MARKS[status]
    line = Text.assemble((mark, style), " ", (f"{name:<14}", "bold"), found)
    if hint:
        line.append(f"\n{'':16}{hint}", "cyan")
    return line
