"""Settings from a TOML file, the environment and flags, in rising precedence, with the source of each value.

- The file: `--config`, else `POLYDOMO_CONFIG`, else `polydomo.toml` in the current folder if there is one.
- The environment: `POLYDOMO_` + section + `_` + key in upper case (`POLYDOMO_HEARTBEAT_INTERVAL=500ms`), for
  every setting; lists are separated by commas. An empty variable counts as not set.
- Durations are seconds or "250ms", "10s", "5m", "2h", "1m30s"; sizes are bytes or "64MiB", "1GB", "1MiB+64KiB".

All mistakes are reported together, each with its place, its value and the allowed values.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from polydomo import redaction
from polydomo.errors import ConfigError
from polydomo.security.roles import BUILT_IN
from polydomo.server.setting_keys import (
    ALL_SECTIONS,
    KEYS,
    NAMED,
    PREFIX,
    PRINCIPAL,
    PRINCIPALS,
    SECTION_KEYS,
    SECTIONS,
    Key,
    Rejected,
    named_path,
    parse,
    principal_mistake,
    show,
)
from polydomo.server.settings import Settings, in_effect

DEFAULT_FILE = "polydomo.toml"
FILE_VARIABLE = "POLYDOMO_CONFIG"
# Variables of the SDK that have the form of a setting's.
_OTHERS = ("POLYDOMO_JOIN_TOKEN",)

# Kubernetes sets such variables in every container next to a service called "polydomo-broker".
_KUBERNETES = re.compile(r"_SERVICE_(HOST|PORT\w*)$|_PORT(_\d+_(TCP|UDP)\w*)?$")


class Flag(NamedTuple):
    """Value from the command line: the flag, the setting's key and the text."""

    flag: str
    key: str
    value: object


class ConfigProblem(msgspec.Struct, frozen=True):
    """Mistake in the configuration."""

    where: str  # the file and line, the environment variable or the flag
    key: str
    value: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.where}: {self.key}" if self.key else self.where
        shown = f" = {self.value}" if self.value else ""
        return f"{place}{shown}: {self.message}" + (f" ({self.hint})" if self.hint else "")


class Config(NamedTuple):
    """Configuration from all sources. If there are problems, `settings` are the defaults."""

    settings: Settings
    sources: dict[str, str]  # of the values that are not defaults
    problems: list[ConfigProblem]
    file: str  # path of the configuration file, if one was read

    def checked(self) -> Settings:
        """Return the settings, or raise one ConfigError with all mistakes."""
        if self.problems:
            raise ConfigError("\n".join(str(problem) for problem in self.problems))
        return self.settings


class Row(NamedTuple):
    """Setting as `polydomo config show` displays it."""

    key: str
    value: str
    source: str
    doc: str


def gather(
    file: str | None = None, flags: Iterable[Flag] = (), environ: Mapping[str, str] | None = None
) -> Config:
    """Read and check the settings of all sources."""
    reader = _Reader()
    environ = os.environ if environ is None else environ
    named = file or environ.get(FILE_VARIABLE, "")
    path = named or DEFAULT_FILE
    found = bool(named) or Path(path).exists()
    if found:
        reader.read_file(path, "" if file else FILE_VARIABLE if named else "")
    reader.read_environment(environ)
    reader.read_flags(flags)
    reader.check_roles()
    settings = Settings() if reader.problems else msgspec.convert(reader.tree, Settings)
    redaction.learn(secrets(settings))
    return Config(settings, reader.sources, reader.problems, path if found else "")


def rows(config: Config) -> list[Row]:
    """Return all settings with their values in effect, in the order of the sections. Secrets are masked."""
    settings = config.settings
    policy = settings.policy()
    found = []
    for key in KEYS.values():
        value = key.of(settings)
        if value is None:  # in [defaults]: the core's default
            value = in_effect(policy, key.name)
        found.append(Row(key.path, show(key, value), config.sources.get(key.path, "default"), key.doc))
    for section, named in NAMED.items():
        for name, own in getattr(settings, section).items():
            for key in named.keys.values():
                path = named_path(section, name, key.name)
                if path in config.sources:
                    value = getattr(own, key.name)
                    found.append(Row(path, show(key, value), config.sources[path], key.doc))
    for name, roles in settings.principals.items():
        path = named_path(PRINCIPALS, name)
        found.append(Row(path, show(PRINCIPAL, roles), config.sources[path], PRINCIPAL.doc))
    return found


def secrets(settings: Settings) -> Iterator[str]:
    """Yield the passwords and keys in the settings that may hold one."""
    for key in KEYS.values():
        if key.secret:
            value = key.of(settings)
            for one in value if key.many else [value]:
                yield from redaction.secrets_in(one)


def changes(old: Settings, new: Settings) -> tuple[list[str], list[str]]:
    """Return the keys of settings that differ: those that a reload changes, and those that need a restart."""
    live: list[str] = []
    restart: list[str] = []
    for key in KEYS.values():
        if key.of(old) != key.of(new):
            (restart if key.restart else live).append(key.path)
    for section in (*NAMED, PRINCIPALS):
        before, after = getattr(old, section), getattr(new, section)
        names = sorted(before.keys() | after.keys())
        live += [f"{section}.{name}" for name in names if before.get(name) != after.get(name)]
    return live, restart


def keep(old: Settings, new: Settings) -> None:
    """Give `new` the values of `old` for the settings that only a restart changes."""
    for key in KEYS.values():
        if key.restart:
            setattr(getattr(new, key.section), key.name, key.of(old))


# Sources.


class _Reader:
    """Values and mistakes from all sources; a later source overrides an earlier one."""

    def __init__(self) -> None:
        self.tree: dict[str, dict[str, Any]] = {}
        self.sources: dict[str, str] = {}
        self.problems: list[ConfigProblem] = []

    def read_file(self, path: str, variable: str) -> None:
        """Read the configuration file; `variable` is the environment variable that names it, if one does."""
        by = f" (named by {variable})" if variable else ""
        try:
            text = Path(path).read_text(encoding="utf-8")
            tables = tomllib.loads(text)
        except OSError as error:
            self._problem(path, "", None, f"cannot be read: {error.strerror}{by}")
            return
        except UnicodeDecodeError:
            self._problem(path, "", None, f"is not text in UTF-8{by}")
            return
        except tomllib.TOMLDecodeError as error:
            self._problem(path, "", None, f"is not TOML: {error}")
            return
        lines = _line_numbers(text)
        for section, table in tables.items():
            self._read_section(path, lines, section, table)

    def _read_section(self, path: str, lines: dict[tuple[str, ...], int], section: str, table: Any) -> None:
        def where(*keys: str) -> str:
            line = next((lines[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in lines), None)
            return path if line is None else f"{path}:{line}"

        if section not in ALL_SECTIONS:
            self._problem(where(section), section, None, "no such section", _suggest(section, ALL_SECTIONS))
        elif not isinstance(table, dict):
            self._problem(
                where(section), section, table, "is a section", f"write [{section}] on a line before it"
            )
        elif section in NAMED:
            for name, own in table.items():
                if isinstance(own, dict):
                    self._take_named(partial(where, section, name), section, name, own)
                else:
                    self._problem(
                        where(section, name),
                        f"{section}.{name}",
                        own,
                        NAMED[section].meaning,
                        f'write [{section}."{name}"]',
                    )
        elif section == PRINCIPALS:
            for name, raw in table.items():
                self._take_principal(where(section, name), name, raw)
        else:
            for key, raw in table.items():
                self._take(where(section, key), section, key, raw)

    def read_environment(self, environ: Mapping[str, str]) -> None:
        """Read all variables `POLYDOMO_SECTION_KEY`. An unknown key of a known section is a mistake."""
        known = {key.variable: key for key in KEYS.values()}
        sections = tuple(f"{PREFIX}{section.upper()}_" for section in ALL_SECTIONS)
        for variable, raw in environ.items():
            key = known.get(variable)
            if not raw:
                continue
            if key is not None:
                self._take(variable, key.section, key.name, raw)
            elif (
                variable.startswith(sections) and variable not in _OTHERS and not _KUBERNETES.search(variable)
            ):
                hint = _suggest(variable, known)
                for section in (*NAMED, PRINCIPALS):
                    if variable.startswith(f"{PREFIX}{section.upper()}_"):
                        hint = f"{section} are configured in the file"
                self._problem(variable, "", raw, "no such setting", hint)

    def read_flags(self, flags: Iterable[Flag]) -> None:
        """Read flags, which name a setting by its key in the file."""
        for flag, path, raw in flags:
            section, _, rest = path.partition(".")
            if section in NAMED:
                name, _, key = rest.rpartition(".")
                self._take_named(partial(_place, flag), section, name.strip("\"'"), {key: raw})
            elif section == PRINCIPALS:
                self._take_principal(flag, rest.strip("\"'"), raw)
            elif section in SECTIONS and rest:
                self._take(flag, section, rest, raw)
            else:
                self._problem(flag, path, raw, "no such setting", _suggest(path, KEYS))

    def check_roles(self) -> None:
        """Look for roles of principals that do not exist."""
        known = [*self.tree.get("roles", {}), *BUILT_IN]
        for name, roles in self.tree.get(PRINCIPALS, {}).items():
            path = named_path(PRINCIPALS, name)
            for role in roles:
                if role not in known:
                    self._problem(self.sources[path], path, role, "no such role", _suggest(role, known))

    def _take(self, where: str, section: str, name: str, raw: object) -> None:
        """Take the value of a setting."""
        path = f"{section}.{name}"
        keys = SECTION_KEYS[section]
        if name not in keys:
            self._problem(where, path, raw, "no such setting", _suggest(name, keys))
        else:
            self._set(where, path, keys[name], raw, self.tree.setdefault(section, {}), name)

    def _take_named(self, where: Callable[..., str], section: str, name: str, values: dict[str, Any]) -> None:
        """Take the values of [SECTION.NAME]; `where` returns the place of it, or of one of its keys."""
        keys, _, mistake = NAMED[section]
        wrong = mistake(name)
        if wrong:
            self._problem(where(), named_path(section, name), None, wrong)
            return
        table = self.tree.setdefault(section, {}).setdefault(name, {})
        for key, raw in values.items():
            path = named_path(section, name, key)
            if key not in keys:
                noun = "verb" if section == "roles" else "setting"
                self._problem(where(key), path, raw, f"no such {noun}", _suggest(key, keys))
            else:
                self._set(where(key), path, keys[key], raw, table, key)

    def _take_principal(self, where: str, name: str, raw: object) -> None:
        """Take the roles of a principal."""
        path = named_path(PRINCIPALS, name)
        wrong = principal_mistake(name)
        if wrong:
            self._problem(where, path, raw, wrong)
        else:
            self._set(where, path, PRINCIPAL, raw, self.tree.setdefault(PRINCIPALS, {}), name)

    def _set(self, where: str, path: str, key: Key, raw: object, table: dict[str, Any], name: str) -> None:
        """Set a value in its table and record its source, or record the problem."""
        try:
            table[name] = parse(key, raw)
        except (ValueError, OverflowError) as error:
            hint = _suggest(raw, key.choices, "") if isinstance(raw, str) else ""
            because = f"{error}; " if isinstance(error, Rejected) else ""
            self._problem(where, path, raw, f"{because}must be {key.allowed}", hint)
        else:
            self.sources[path] = where

    def _problem(self, where: str, key: str, value: object, message: str, hint: str = "") -> None:
        """Record a mistake.

        The value is included only if the setting is known to have no secret: an unknown name may be a misspelled
        `store.url`.
        """
        section, _, rest = key.partition(".")
        if section in NAMED:
            known = NAMED[section].keys.get(rest.rpartition(".")[2])
        else:
            known = PRINCIPAL if section == PRINCIPALS else KEYS.get(key)
        shown = "" if value is None else msgspec.json.encode(value, enc_hook=str).decode()
        if known is None or known.secret:
            shown = shown if isinstance(value, int | float) else ""
        self.problems.append(
            ConfigProblem(where, key, redaction.redact(shown), redaction.redact(message), hint)
        )


def _place(flag: str, key: str = "") -> str:
    """Return the place of a setting that a flag gives."""
    return flag


def _suggest(word: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """Return a hint with the closest known word, or with all of them."""
    options = list(known)
    near = difflib.get_close_matches(word, options, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]}?"
    if otherwise is not None:
        return otherwise
    return (
        "known are " + ", ".join(options) if len(options) <= 20 else "'polydomo config show' lists them all"
    )


_HEADER = re.compile(r"^\s*\[[^\[\]]+\]")
_ASSIGNMENT = re.compile(r"^\s*([^=#\[\]]+?)\s*=")


def _line_numbers(text: str) -> dict[tuple[str, ...], int]:
    """Return the approximate line numbers of tables and keys, for error messages."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        assignment = _ASSIGNMENT.match(line)
        try:
            if header:
                table = _first_path(tomllib.loads(header[0]))
                found.setdefault(table, number)
            elif assignment:
                found.setdefault(table + _first_path(tomllib.loads(f"{assignment[1]} = 0")), number)
        except tomllib.TOMLDecodeError:
            continue
    return found


def _first_path(tables: dict[str, Any]) -> tuple[str, ...]:
    """Return the keys down to the innermost entry of a single line's table."""
    path: list[str] = []
    here: Any = tables
    while isinstance(here, dict) and here:
        key = next(iter(here))
        path.append(key)
        here = here[key]
    return tuple(path)
