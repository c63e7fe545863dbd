"""Generator of the reference pages that come from the code: access, cli, configuration, errors, http, sdk and tables.

    python tools/make_reference.py [FOLDER]         default: docs/reference

A test generates them again and compares, so a setting, flag, method or error is described only where it is defined.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args

import typer
from access_page import access_page
from http_page import http_page
from markdown_parts import escape, flow, table
from tables_page import tables_page

import polydomo
from polydomo import errors, testing
from polydomo.cli import broker as broker_command
from polydomo.cli import common
from polydomo.cli.main import app
from polydomo.core import failure as reasons
from polydomo.sdk import (
    client,
    codecs,
    failures,
    manager,
    options,
    persistence,
    profiles,
    pytest_plugin,
    service,
    subscription,
    url,
    worker,
)
from polydomo.server import config, setting_keys
from polydomo.server.security_settings import QuotaSection
from polydomo.server.settings import ServiceSection, Settings

ROOT = Path(__file__).resolve().parent.parent
NOTICE = "<!-- Made by tools/make_reference.py from the code: change it there, then run that. -->"


# Names in docstrings, and the sections of the reference about them.
LINKS = {
    "polydomo.sdk.url": "[URLs](#urls)",
    "polydomo.sdk.profiles": "[profiles](#profiles)",
    "polydomo.sdk.codecs": "[codecs](#bodies-and-codecs)",
    "polydomo.sdk.service": "[functions](#functions)",
    "polydomo.sdk.context": "[Context](#context)",
    "polydomo.server.settings": "[settings](configuration.md)",
    "polydomo.errors": "[these](errors.md)",
    "polydomo.sdk.options": "[these](#options-of-a-call)",
    "polydomo.sdk.worker_management": "[how](../how-to/nfp.md#manage-workers)",
}


def main(folder: Path) -> None:
    """Write all pages to a folder."""
    pages = {"cli": cli_page, "configuration": configuration_page, "errors": errors_page, "sdk": sdk_page}
    pages |= {"access": access_page, "http": http_page, "tables": tables_page}
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in pages.items():
        title, *rest = make()
        text = "\n\n".join([f"# {title}", NOTICE, *rest]) + "\n"
        for named, link in LINKS.items():
            text = text.replace(f"`{named}`", link)
        (folder / f"{name}.md").write_text(text, encoding="utf-8")


# The command.


def cli_page() -> list[str]:
    """Return the page of commands, arguments and flags."""
    root: Any = typer.main.get_command(app)
    parts = [
        "The `polydomo` command",
        flow(f"""
            Every command has `--help`. Commands that query a broker find it by `--url`, else by `POLYDOMO_URL`,
            else by a [profile](../how-to/keys.md#keep-it-all-in-a-profile), else at `{common.DEFAULT_URL}`; the
            forms of a URL are in [the SDK's reference](sdk.md#urls). With `--json`, results and errors are JSON on
            stdout. `polydomo --install-completion` lets the Tab key complete commands, flags and the names of
            services.
        """),
        "## Exit codes",
        _exit_codes(),
        "## Environment",
        table(
            ["variable", "meaning"],
            [
                ["`POLYDOMO_URL`", "the default broker of clients, workers and commands"],
                [f"`{url.SERVER_KEY_VARIABLE}`", "the broker's public key, if it requires CURVE"],
                [f"`{url.KEY_VARIABLE}`", "the file with the own key pair; default: a new one per process"],
                [f"`{url.JOIN_TOKEN_VARIABLE}`", "a join token, with which the broker accepts that key"],
                [f"`{profiles.VARIABLE}`", "the profile with what is not set above"],
                [f"`{config.FILE_VARIABLE}`", "the configuration file of `broker`, `config` and `doctor`"],
                [
                    "`POLYDOMO_SECTION_KEY`",
                    "any setting of the broker: see [configuration](configuration.md)",
                ],
                ["`POLYDOMO_DEBUG=1`", "a traceback instead of one line when a command fails"],
            ],
        ),
    ]
    for name, command in _commands(root):
        parts += _command(name, command)
    return parts


def _commands(group: Any, prefix: str = "polydomo") -> Iterable[tuple[str, Any]]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def _command(name: str, command: Any) -> list[str]:
    callback = inspect.unwrap(command.callback)
    arguments = [_metavar(p, callback) for p in command.params if p.param_type_name == "argument"]
    usage = [name.replace(" ls", " [ls]"), *arguments, "[FLAGS]"]  # `ls` is the default command of its group
    parts = [f"## {name}", _paragraphs(command.help or ""), f"```text\n{' '.join(usage)}\n```"]
    keys = broker_command.OPTIONS if name == "polydomo broker" else {}
    rows = []
    for parameter in command.params:
        if getattr(parameter, "hidden", False) or parameter.name == "help":
            continue
        said = parameter.help or ""
        flags = [flag for flag in parameter.opts if flag.startswith("-")]
        if flags:
            shown = ", ".join(f"`{flag}`" for flag in sorted(flags, key=len, reverse=True))
            if not getattr(parameter, "is_flag", False):
                shown += f" {_metavar(parameter, callback)}"
        else:
            shown = f"`{_metavar(parameter, callback)}`"
        key = next((f"`{keys[flag].key}`" for flag in flags if flag in keys), "")
        rows.append([shown, _default(parameter), *([key] if keys else []), escape(said)])
    if rows:
        parts.append(table(["argument or flag", "default", *(["key"] if keys else []), "meaning"], rows))
    return parts


def _metavar(parameter: Any, callback: Callable[..., Any]) -> str:
    """Return the given metavar, else N for numbers and the parameter's name for the rest."""
    if parameter.metavar:
        return str(parameter.metavar)
    own = inspect.signature(callback, eval_str=True).parameters.get(parameter.name)
    kind = "" if own is None else str(get_args(own.annotation)[0])  # none: an option of a group
    if "Path" in kind:
        return "DIR"
    return "N" if "int" in kind else str(parameter.name).upper()


def _default(parameter: Any) -> str:
    default = parameter.default
    if default in (None, False, "", ()) or callable(default) or parameter.required:
        return ""
    return f"`{default}`"


def _exit_codes() -> str:
    """Return the table in the docstring of cli/common.py."""
    lines = [line for line in inspect.cleandoc(common.__doc__ or "").splitlines() if line.startswith("|")]
    return "\n".join(lines)


# Settings.


def configuration_page() -> list[str]:
    """Return the page of settings and defaults."""
    defaults = {row.key: row.value for row in config.rows(config.Config(Settings(), {}, [], ""))}
    parts = [
        "Settings",
        flow("""
            Values come from a TOML file, the environment and flags, in rising precedence; see [how to
            configure](../how-to/configure.md). Durations are seconds or texts such as `250ms`, `10s`,
            `1m30s`, `2h`; sizes are bytes or texts such as `64KiB`, `1GB`, `1MiB+64KiB`; lists in the
            environment are separated by commas. SIGHUP reloads everything except settings marked *restart*. On the
            command line every setting can be given as `--set KEY=VALUE`, some also by [their own
            flag](cli.md#polydomo-broker).
        """),
    ]
    for section, struct in setting_keys.SECTIONS.items():
        if section == "defaults":
            continue
        keys = [key for key in setting_keys.KEYS.values() if key.section == section]
        parts += [f"## [{section}]", paragraph(struct.__doc__), _settings(keys, defaults)]
    keys = [key for key in setting_keys.KEYS.values() if key.section == "defaults"]
    parts += [
        '## [defaults] and [services."NAME"]',
        flow(f"""
            {paragraph(ServiceSection.__doc__)} A name that ends in `*` applies to all services that begin so;
            the longest match is used. `forever` disables a duration. Services are configured in the file
            or with `--set`.
        """),
        _settings(keys, defaults),
        '```toml\n[defaults]\ntimeout = "5m"\n\n[services."render.*"]\ntimeout = "1h"\nretries = 0\n```',
        "## [roles.NAME] and [principals]",
        flow("""
            What principals may do, if `security.roles` is on; see [roles](../how-to/roles.md). Each key of a role is a
            list of SERVICE or SERVICE@WORKER, in which `*` stands for any text. Each key of `[principals]` is the
            name of a principal, or a pattern; its value is a list of roles. A principal has the roles of all entries
            that match its name.
        """),
        _named_settings("roles"),
        '```toml\n[roles.resizer]\nserve = ["resize"]\n\n[roles.shop]\ncall = ["resize", "mail.*@eu-*"]\n\n'
        '[principals]\nworker-1 = ["resizer"]\n"shop-*" = ["shop", "observer"]\n```',
        "## [quotas.NAME]",
        flow(f"""
            {paragraph(QuotaSection.__doc__)} NAME is the name of a principal, or a pattern; of several that match, only
            the most precise one applies: a name, else the pattern with the most characters.
        """),
        _named_settings("quotas"),
        '```toml\n[quotas."shop-*"]\nrate = 100\njobs = 10000\nbytes = "256MiB"\n```',
    ]
    return parts


def _named_settings(section: str) -> str:
    keys = setting_keys.NAMED[section].keys.values()
    return table(["key", "kind", "meaning"], [[f"`{key.name}`", _kind(key), escape(key.doc)] for key in keys])


def _kind(key: setting_keys.Key) -> str:
    if key.many:
        return f"list of {'services' if key.unit == 'grant' else 'endpoints'}"
    return "choice" if key.choices else key.unit


def _settings(keys: list[setting_keys.Key], defaults: dict[str, str]) -> str:
    rows = []
    for key in keys:
        choices = f" ({', '.join(key.choices)})" if key.choices else ""
        restart = " *restart*" if key.restart else ""
        default = defaults[key.path]
        rows.append(
            [
                f"`{key.name}`",
                f"`{default}`" if default else "",
                _kind(key),
                f"`{key.variable}`",
                escape(key.doc) + choices + restart,
            ]
        )
    return table(["key", "default", "kind", "variable", "meaning"], rows)


# Errors.

MEANINGS = {
    "EXPIRED": "no worker accepted it within the service's `wait`",
    "EXHAUSTED": "every attempt lost its worker or ran longer than the service's `timeout`",
    "WORKER_ERROR": "the worker's own code raised",
    "QUEUE_FULL": "the service's `queue` is full",
    "NO_MEMORY": "the jobs in the broker exceed `limits.memory`",
    "DRAINING": "the broker is stopping",
    "TOO_MANY_HOPS": "it was forwarded more than `limits.hops` times",
    "BAD_SERVICE": "the service's name is empty or longer than 255 bytes",
    "TOO_MANY_SERVICES": "more than `limits.services` names are in use",
    "CLIENT_GONE": "its client left, so the failure is not reported; seen in `polydomo jobs ls`",
    "CANCELLED": "it was cancelled",
    "DEADLINE": "it had not ended at its deadline",
    "STORE": "it is durable and could not be stored, so it was not accepted",
    "DUPLICATE": "another job has the id that its client gave it",
    "KEY_REUSED": "its idempotency key is that of a request with another body",
    "BAD_TARGET": "no worker can match its target",
    "DENIED": "no role of its client grants it ([roles](../how-to/roles.md))",
    "QUOTA": "its principal may have no more at the moment ([quotas](../how-to/quotas.md))",
    "WORKER_GONE": "it was for one unnamed worker, which has disconnected",
}


def errors_page() -> list[str]:
    """Return the page of errors, and of reasons of failed jobs."""
    return [
        "Errors",
        flow("""
            Everything that Polydomo raises on purpose is a `polydomo.errors.PolydomoError`. Each class has
            a stable `code` for programs; each error has a `message`, and an `advice` that says what to do
            next (its text is `message (advice)`). The `polydomo` command prints both and ends with an [exit
            code](cli.md#exit-codes); with `--json` it prints `{"error": {"code": …, "message": …, "hint":
            …}}`.
        """),
        table(["error", "code", "raised when", "exit code"], _error_rows(errors.PolydomoError)),
        flow("""
            `JobFailed` has a `reason`, from the table below. `WorkerError` has `kind`, the name of the
            exception's type in the worker, and `traceback`, its text if the worker sends it.
        """),
        "## Why a job has no result",
        flow("""
            The `reason` is in failure replies to our own clients, in `polydomo jobs ls` and in
            `show_jobs`. What other clients receive is in
            [guarantees](../explanation/guarantees.md#when-something-goes-wrong).
        """),
        table(["reason", "meaning", "the SDK's client raises"], _reason_rows()),
    ]


def _error_rows(kind: type[errors.PolydomoError], depth: int = 0) -> list[list[str]]:
    indent = "&nbsp;&nbsp;" * depth
    code = next((number for error, number in common.CODES.items() if issubclass(kind, error)), common.FAILED)
    rows = [[f"{indent}`{kind.__name__}`", f"`{kind.code}`", escape(paragraph(kind.__doc__)), str(code)]]
    for child in kind.__subclasses__():
        if child.__module__ in (errors.__name__, codecs.__name__, persistence.__name__):
            rows += _error_rows(child, depth + 1)
    return rows


def _reason_rows() -> list[list[str]]:
    found = {
        name: value
        for name, value in vars(reasons).items()
        if name.isupper() and isinstance(value, str) and name not in ("STATES",)
    }
    if found.keys() != MEANINGS.keys():
        sys.exit(f"MEANINGS in {__file__} must explain exactly {', '.join(found)}")
    rows = []
    for name, value in found.items():
        error = failures.error_of(failures.FailureInfo(reason=value), "")
        raised = "–" if value == reasons.CLIENT_GONE else f"`{type(error).__name__}`"
        rows.append([f"`{value}`", MEANINGS[name], raised])
    return rows


# The SDK.

EXAMPLE = """```python
import asyncio

from polydomo import Client, Worker
from polydomo.testing import LocalBroker


async def main():
    async with LocalBroker() as broker:  # or a real one: mdp://127.0.0.1:5555
        worker = Worker(broker.url)

        @worker.service
        async def add(numbers):
            return sum(numbers)

        @worker.service
        async def stars(number, ctx):
            for n in range(1, number):
                ctx.progress("*" * n)
            return await ctx.call("add", [number, 1000])

        async with worker, Client(broker.url) as client:
            print(await client.call("add", [1, 2, 3], timeout=5))
            async for part in client.stream("stars", 3):
                print(part)


asyncio.run(main())
```

```text
6
*
**
1003
```"""


# Public, but only for code that extends the SDK.
INNER = {"exchange", "abandon", "accept", "worker_failed", "start", "due", "tick", "body", "pieces"}


def sdk_page() -> list[str]:
    """Return the page of the SDK's public classes."""
    return [
        "The SDK",
        flow("""
            `from polydomo import Client, Worker`, or their blocking twins `SyncClient` and `SyncWorker`.
            The SDK speaks ZMTP itself: no libzmq is needed. Complete, with a broker in the same process:
        """),
        EXAMPLE,
        "## URLs",
        f"```text\n{inspect.cleandoc(url.__doc__ or '').partition(chr(10) * 2)[2].strip()}\n```",
        f"Without a URL, `{url.VARIABLE}` is used, else that of the profile, else `{url.DEFAULT_URL}`.",
        "### Profiles",
        _paragraphs(inspect.cleandoc(profiles.__doc__ or "").partition("\n\n")[2]),
        *_class(polydomo.Client, after=_after_indented(client.__doc__)),
        "### Options of a call",
        "Over NFP, `call`, `stream`, `submit`, `request`, `broadcast` and `gather` take these:",
        inspect.cleandoc(options.JobOptions.__doc__ or ""),
        _paragraphs(inspect.cleandoc(options.__doc__ or "").partition("\n\n")[2]),
        *_class(polydomo.Handle, made=False),
        *_class(polydomo.Gather, made=False),
        *_class(polydomo.Job, made=False),
        *_class(polydomo.Subscription, made=False, after=_after_indented(subscription.__doc__)),
        f"An `Event` has `{'`, `'.join(polydomo.Event._fields)}`. " + paragraph(polydomo.Event.__doc__),
        *_class(polydomo.Worker, after=_after_indented(worker.__doc__)),
        "### Functions",
        f"```text\n{_indented(service.__doc__)}\n```",
        _after_indented(service.__doc__),
        *_class(
            polydomo.Context,
            made=False,
            after="`ctx.service` is the requested service name, `ctx.job` the "
            "broker's id of this attempt: a retried job gets another. Over NFP, `ctx.id` is the "
            "client's UUID for the job, the same each time.",
        ),
        *_class(polydomo.Manager, after=_after_indented(manager.__doc__)),
        "## SyncClient, SyncHandle, SyncGather, SyncJob, SyncSubscription, SyncWorker, SyncContext, SyncManager",
        flow("""
            The same methods, blocking: `with` instead of `async with`, `for` instead of `async for`, no
            `await`. They share one event loop in its own thread and may be used from several threads.
            `SyncWorker.run` and `run_forever` block; `with SyncWorker(…) as worker:` serves in the
            background. Plain functions of a service get a `SyncContext`.
        """),
        "## Bodies and codecs",
        _paragraphs(inspect.cleandoc(codecs.__doc__ or "").partition("\n\n")[2]),
        "A custom codec is a `Codec(name, encode, decode)`. "
        + paragraph(polydomo.Codec.__doc__).partition(". ")[2],
        "## Testing",
        "`from polydomo.testing import LocalBroker, SyncLocalBroker`; see "
        "[how to test your services](../how-to/testing-your-services.md).",
        *_class(
            testing.LocalBroker,
            level=3,
            after="`broker.url` is for peers that speak MDP. "
            + _after_indented(sys.modules[testing.LocalBroker.__module__].__doc__),
        ),
        "`SyncLocalBroker` has the same methods, blocking.",
        "### Fixtures of the pytest plugin",
        table(["fixture", "what it is"], _fixtures()),
        _after_indented(pytest_plugin.__doc__),
    ]


def _class(kind: type, *, level: int = 2, made: bool = True, after: str = "") -> list[str]:
    """Return a class's text, its constructor (if users call it), and its methods."""
    said = inspect.cleandoc(kind.__doc__ or "").removeprefix("See the module's text.").strip()
    options = re.sub(r"(?m)^(?=`\w+`[:,])", "- ", _rejoined(said))
    parts = [f"{'#' * level} {kind.__name__}", options, after]
    if made:
        parts.append(f"```text\n{constructor(kind)}\n```")
    rows = []
    for ancestor in reversed(kind.__mro__):
        for name, value in vars(ancestor).items():
            if isinstance(value, property) and not name.startswith("_"):
                rows.append([f"`{name}`", escape(paragraph(value.__doc__))])
    for ancestor in reversed(kind.__mro__):
        for name, method in vars(ancestor).items():
            public = not name.startswith("_") and name not in INNER
            if (
                public
                and inspect.isfunction(method)
                and method.__doc__
                and ancestor.__module__.startswith("polydomo")
            ):
                rows.append(
                    [f"`{call(name, method)}`", escape(_paragraphs(method.__doc__)).replace("  ", " ")]
                )
    parts.append(table(["method or property", "what it does"], rows))
    return [part for part in parts if part]


def constructor(kind: type) -> str:
    """Return the constructor with types and defaults, one per line."""
    words = []
    for parameter in inspect.signature(kind).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        words.append(f"{parameter.name}: {parameter.annotation} = {parameter.default!r}")
    return f"{kind.__name__}(\n    " + ",\n    ".join(words) + ",\n)"


def call(name: str, method: Callable[..., Any]) -> str:
    """Return a method's call as written by users. Options inherited from the client or worker have no default."""
    words: list[str] = []
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            words.append(f"**{parameter.name}")
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        inherited = parameter.kind is parameter.KEYWORD_ONLY and not isinstance(
            parameter.default, bool | float
        )
        default = "" if inherited or parameter.default is parameter.empty else f"={parameter.default!r}"
        words.append(f"{parameter.name}{default}")
    prefix = "await " if inspect.iscoroutinefunction(method) else ""
    if inspect.isasyncgenfunction(method):
        prefix = "async for … in "
    return f"{prefix}{name}({', '.join(words)})"


def _fixtures() -> list[list[str]]:
    rows = []
    for name, value in vars(pytest_plugin).items():
        if name.startswith("polydomo_"):
            function = getattr(value, "__wrapped__", None) or value._get_wrapped_function()
            rows.append([f"`{name}`", escape(paragraph(function.__doc__))])
    return rows


# Texts.


def paragraph(doc: str | None) -> str:
    """Return the first paragraph on one line."""
    return " ".join(inspect.cleandoc(doc or "").partition("\n\n")[0].split())


def _paragraphs(doc: str) -> str:
    """Return all paragraphs, each on one line; lists stay lists, indented blocks are omitted."""
    kept = []
    for part in inspect.cleandoc(doc).split("\n\n"):
        if part.startswith("    "):
            continue
        items = re.split(r"\n(?=- )", part)
        kept.append("\n".join(" ".join(item.split()) for item in items))
    return "\n\n".join(kept)


def _rejoined(doc: str) -> str:
    lines: list[str] = []
    for line in doc.splitlines():
        if not line or not lines or not lines[-1] or line.startswith(("`", "- ")):
            lines.append(line)
        else:
            lines[-1] += f" {line.strip()}"
    return "\n".join(lines)


def _indented(doc: str | None) -> str:
    """Return the first indented block of a docstring."""
    found = re.search(r"(?m)^(?: {4}.*\n)+", inspect.cleandoc(doc or "") + "\n")
    return inspect.cleandoc(found[0]) if found else ""


def _after_indented(doc: str | None) -> str:
    """Return the text after a docstring's last indented block."""
    parts = inspect.cleandoc(doc or "").split("\n\n")
    last = max((number for number, part in enumerate(parts) if part.startswith("    ")), default=len(parts))
    return _paragraphs("\n\n".join(parts[last + 1 :]))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "reference")
