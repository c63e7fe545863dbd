"""`polydomo doctor`: check this installation, its configuration and a broker."""

from __future__ import annotations

import platform
import resource
import sys
from typing import Any

import typer
from rich.text import Text

import polydomo
from polydomo.cli import broker_client, common, install_info
from polydomo.cli.config import ConfigFile
from polydomo.errors import ConfigError, PolydomoError
from polydomo.pipeline.doctor import OK, WARNING, WRONG, Finding
from polydomo.redaction import redact
from polydomo.server import config, exposure
from polydomo.server.config import Config
from polydomo.server.settings import Settings
from polydomo.server.tls_contexts import server_context

OLDEST_PYTHON = (3, 11)
LIBRARIES = ("uvloop", "msgspec", "cbor2", "pynacl", "typer", "rich", "structlog")
# Descriptors that a broker needs besides one per peer: listeners, log, data folder, libraries.
SPARE_FILES = 64
BENCHMARKS = "docs/reference/benchmarks.md"

MARKS = {OK: ("✓", "bold green"), WARNING: ("!", "bold yellow"), WRONG: ("✗", "bold red")}


def doctor(
    ctx: typer.Context,
    url: common.Url = common.DEFAULT_URL,
    file: ConfigFile = None,
    as_json: common.Json = False,
) -> None:
    """Check Python, build, limits, configuration and broker. Exit code 1: something is wrong."""
    given = common.was_given(ctx, "url")
    found = config.gather(file)
    findings = [
        check_python(),
        *check_libraries(),
        check_loop(),
        check_build(),
        check_open_files(found.settings.limits.connections),
        check_config(found),
        *check_listeners(found.settings),
        *check_broker(url, given),
    ]
    report = CheckReport(as_json)
    for finding in findings:
        report.add(finding)
    report.finish(facts(findings) | {"url": redact(url)})


class CheckReport:
    """The findings of all checks, printed one by one, or as JSON at the end."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.findings: list[Finding] = []

    def add(self, finding: Finding) -> None:
        """Print a finding as a line, with a hint below it."""
        finding = finding._replace(found=redact(finding.found), hint=redact(finding.hint))
        self.findings.append(finding)
        if self.as_json:
            return
        line = Text.assemble(MARKS[finding.status], " ", (f"{finding.name:<14}", "bold"), finding.found)
        if finding.hint:
            line.append(f"\n{'':16}{finding.hint}", "cyan")
        common.out.print(line, soft_wrap=True)

    def finish(self, facts: dict[str, Any] | None = None) -> None:
        """Print the JSON, with further facts, and exit with an error if something is wrong."""
        ok = all(finding.status != WRONG for finding in self.findings)
        if self.as_json:
            checks = [finding._asdict() for finding in self.findings]
            common.print_json((facts or {}) | {"ok": ok, "checks": checks})
        if not ok:
            raise typer.Exit(common.FAILED)


def facts(checks: list[Finding]) -> dict[str, Any]:
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


def check_python() -> Finding:
    """Check that Python is new enough."""
    found = f"{platform.python_implementation()} {platform.python_version()}, polydomo {polydomo.__version__}"
    if sys.version_info < OLDEST_PYTHON:
        return Finding("python", WRONG, found, f"at least {'.'.join(map(str, OLDEST_PYTHON))} is needed")
    return Finding("python", OK, found)


def check_libraries() -> list[Finding]:
    """Check that all libraries except uvloop are installed; return the missing ones."""
    missing = [name for name in LIBRARIES if not install_info.library_version(name) and name != "uvloop"]
    return [Finding("libraries", WRONG, f"{name} is missing", "pip install polydomo") for name in missing]


def check_loop() -> Finding:
    """Check for uvloop, with which the broker is faster."""
    if install_info.loop_name() == "uvloop":
        return Finding("event loop", OK, f"uvloop {install_info.library_version('uvloop')}")
    return Finding("event loop", WARNING, "asyncio", "pip install uvloop: the broker is faster with it")


def check_build() -> Finding:
    """Check that all or none of the hot modules are compiled, and none is older than its source."""
    modules, built = _modules()
    stale = sorted(name for name, origin in built.items() if install_info.is_stale(origin))
    if stale:
        hint = "build again (make wheel), or delete the .so files"
        return Finding("build", WARNING, f"compiled, but older than their source: {', '.join(stale)}", hint)
    if not built:
        return Finding("build", OK, f"plain Python (a compiled wheel is faster: {BENCHMARKS})")
    if len(built) < len(modules):
        plain = ", ".join(sorted(modules.keys() - built.keys()))
        return Finding(
            "build", WARNING, f"only {len(built)} of {len(modules)} hot modules are compiled; not {plain}"
        )
    return Finding("build", OK, f"compiled: all {len(built)} hot modules")


def _modules() -> tuple[dict[str, str], dict[str, str]]:
    """Return all hot modules with their files, and the compiled ones among them."""
    modules = install_info.hot_modules()
    return modules, {name: file for name, file in modules.items() if install_info.is_compiled(file)}


def check_open_files(peers: int) -> Finding:
    """Check the hard limit of open files, to which the broker raises the soft one: it needs one per peer."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        return Finding("open files", OK, "unlimited")
    if hard < peers + SPARE_FILES:
        hint = "raise it (ulimit -Hn, LimitNOFILE= in systemd) or lower limits.connections"
        return Finding("open files", WARNING, f"{hard}: too few for limits.connections = {peers}", hint)
    return Finding("open files", OK, f"{hard}")


def check_config(found: Config) -> Finding:
    """Check the configuration file and the environment."""
    if found.problems:
        first, others = found.problems[0], len(found.problems) - 1
        more = f" (and {others} more)" if others else ""
        return Finding("configuration", WRONG, f"{first}{more}", "'polydomo config check' lists everything")
    return Finding(
        "configuration", OK, found.file or ("the environment" if found.sources else "the defaults")
    )


def check_listeners(settings: Settings) -> list[Finding]:
    """Check the certificate for TLS, and that listeners for other machines authenticate their peers."""
    checks = []
    if exposure.has_tls(settings.broker):
        try:
            server_context(settings.tls)
        except ConfigError as error:
            checks.append(Finding("tls", WRONG, error.message, error.advice))
        else:
            checks.append(Finding("tls", OK, settings.tls.certificate))
    exposed = ", ".join(exposure.open_to_others(settings))
    if exposed:
        status, hint = WRONG, "a broker with this configuration does not start without --insecure"
        if settings.broker.insecure:
            status, hint = WARNING, ""
        checks.append(Finding("listeners", status, f"anybody could use {exposed}", hint))
    return checks


def check_broker(url: str, given: bool) -> list[Finding]:
    """Check that a broker replies and has no trouble. At the default URL a missing broker is only a warning."""
    try:
        row = broker_client.query(url, "broker", timeout=2.0)
    except PolydomoError as error:
        return [Finding("broker", WRONG if given else WARNING, error.message, error.advice)]
    found = f"{row['name']} {row['version']} at {url}, {row['workers']} workers, {row['services']} services"
    if row["version"] != polydomo.__version__:
        checks = [Finding("broker", WARNING, found, f"this command is {polydomo.__version__}")]
    else:
        checks = [Finding("broker", OK, found)]
    for name in ("store", "ledger", "audit"):
        trouble = row.get(name, {}).get("trouble")
        if trouble:
            checks.append(Finding(name, WRONG, trouble))
    if row.get("insecure"):
        found = f"anybody who reaches its machine may use {', '.join(row['insecure'])}"
        checks.append(Finding("security", WARNING, found, "docs/how-to/tls.md and docs/how-to/keys.md"))
    damage = row.get("store", {}).get("damage")
    if damage:
        checks.append(Finding("store", WRONG, f"jobs were lost: {damage}", "look for disk errors"))
    return checks
