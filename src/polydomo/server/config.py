"""Settings from a TOML file, the environment and flags, in rising precedence, with the source of each value.

- The file: `--config`, else `POLYDOMO_CONFIG`, else `polydomo.toml` in the current folder if there is one.
- The environment: `POLYDOMO_` + section + `_` + key in upper case (`POLYDOMO_HEARTBEAT_INTERVAL=500ms`), for
  every setting; lists are separated by commas. An empty variable counts as not set.
- Durations are seconds or "250ms", "10s", "5m", "2h", "1m30s"; sizes are bytes or "64MiB", "1GB", "1MiB+64KiB".

All mistakes are reported together, each with its place, its value and the allowed values.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin

import msgspec

from polydomo import redaction
from polydomo.core.services import SERVICE_NAME_MAX
from polydomo.errors import ConfigError
from polydomo.server import endpoints, units
from polydomo.server.settings import Section, ServiceSection, Setting, Settings, in_effect

DEFAULT_FILE = "polydomo.toml"
FILE_VARIABLE = "POLYDOMO_CONFIG"
PREFIX = "POLYDOMO_"

# Signatures of JSON Web Tokens with a public key (RFC 7518 §3.1, RFC 8037 §3.1).
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")

# Allowed values, by unit.
ALLOWED = {
    "size": "bytes or a text such as 64KiB, 64MiB, 1GB",
    "flag": "true or false",
    "endpoint": "endpoints such as tcp://127.0.0.1:5555, tcp://[::1]:5555, ipc:///run/x.sock",
    "address": "addresses such as 127.0.0.1:8080, [::1]:8080, *:8080",
    "host": "names such as broker.example, *.example, or *; without a port",
    "origin": "origins such as https://dashboard.example, http://localhost:3000, or *",
    "algorithm": f"of {', '.join(ALGORITHMS)}",
    "network": "addresses and networks such as 10.0.0.5, 10.1.0.0/16, fd00::/8",
}
# Parsers of single values, by unit.
_PARSERS: dict[str, Callable[[object], float]] = {
    "duration": units.parse_duration,
    "size": units.parse_size,
    "count": units.parse_count,
    "flag": units.parse_flag,
}

# Checks of a list's items, by unit: they return None or raise an error for an invalid item.
_CHECKS: dict[str, Callable[[str], object]] = {
    "endpoint": partial(endpoints.parse, binding=True),
    "address": endpoints.parse_address,
    "host": re.compile(r"\*|(\*\.)?[0-9A-Za-z_-]+(\.[0-9A-Za-z_-]+)*\.?").fullmatch,
    "origin": re.compile(r"\*|[a-z][a-z0-9+.-]*://[^/?#@\s]+").fullmatch,
    "algorithm": re.compile("|".join(ALGORITHMS)).fullmatch,
    "network": partial(ip_network, strict=False),
    "text": str,
}

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
    for name, section in settings.services.items():
        for key in SERVICE_KEYS.values():
            value = getattr(section, key.name)
            if value is not None:
                path = _service_path(name, key.name)
                found.append(Row(path, show(key, value), config.sources[path], key.doc))
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
    names = old.services.keys() | new.services.keys()
    live += [f"services.{name}" for name in sorted(names) if old.services.get(name) != new.services.get(name)]
    return live, restart


# Descriptions of all settings, made from the sections.


class Key(Setting, frozen=True, kw_only=True):
    """Setting with its place, and what follows from its type."""

    section: str
    name: str
    many: bool
    choices: tuple[str, ...]

    def of(self, settings: Settings) -> Any:
        """Return the value of the setting, which is not one of a service."""
        return getattr(getattr(settings, self.section), self.name)

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        return f"{PREFIX}{self.section}_{self.name}".upper()

    @property
    def allowed(self) -> str:
        """Return a description of the allowed values."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        least = f"above {self.least:g}" if self.above else f"{self.least:g} or more"
        if self.unit == "duration":
            return f"seconds ({least}) or a text such as 250ms, 10s, 5m, 2h" + (", forever" * self.endless)
        if self.unit == "count":
            return f"a whole number, {least}"
        return ALLOWED.get(self.unit, "a text")


def _key(section: str, field: msgspec.structs.FieldInfo) -> Key:
    kind, setting = get_args(field.type)
    if NoneType in get_args(kind):  # … | None
        kind = get_args(kind)[0]
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    return Key(
        section=section,
        name=field.name,
        many=get_origin(kind) is list,
        choices=choices,
        **msgspec.structs.asdict(setting),
    )


SECTIONS: dict[str, type[Section]] = {
    field.name: field.type for field in msgspec.structs.fields(Settings) if isinstance(field.type, type)
}
SECTION_KEYS: dict[str, dict[str, Key]] = {
    section: {field.name: _key(section, field) for field in msgspec.structs.fields(struct)}
    for section, struct in (SECTIONS | {"services": ServiceSection}).items()
}
SERVICE_KEYS = SECTION_KEYS["services"]
KEYS: dict[str, Key] = {key.path: key for section in SECTIONS for key in SECTION_KEYS[section].values()}


# Values.


def show(key: Key, value: object) -> str:
    """Return a value as it is written in the configuration, with secrets masked."""
    if key.many and isinstance(value, list):
        return ", ".join(redaction.redact_option(item) if key.secret else item for item in value)
    if key.unit == "duration" and isinstance(value, float | int):
        return units.show_duration(value)
    if key.unit == "size" and isinstance(value, int):
        return units.show_size(value)
    if key.unit == "flag":
        return "true" if value else "false"
    return redaction.redact(str(value)) if key.secret else str(value)


class _Rejected(ValueError):
    """Rejection of a value with a reason beyond `Key.allowed`."""


def _parse(key: Key, raw: object) -> object:
    """Return the value of a setting; raise ValueError if it is not allowed."""
    if key.many:
        return _parse_list(key, raw)
    if key.unit == "text":
        if not isinstance(raw, str) or (key.choices and raw not in key.choices):
            raise ValueError
        return raw
    value = _PARSERS[key.unit](raw)
    if value == math.inf and not key.endless:
        raise _Rejected("forever is not allowed")
    if value < key.least or (key.above and value == key.least):
        raise ValueError
    return value


def _parse_list(key: Key, raw: object) -> list[str]:
    items = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError
    found = [item.strip() for item in items if item.strip()]
    if not found:
        raise _Rejected("at least one is needed")
    for item in found:
        try:
            checked = _CHECKS[key.unit](item)
        except ConfigError as error:
            raise _Rejected(error.message) from error
        if checked is None:
            raise ValueError
        if found.count(item) > 1 and not item.endswith((":*", ":0")):
            raise _Rejected(f"{redaction.redact_option(item)} is listed twice")
    return found


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

        if section not in SECTIONS and section != "services":
            self._problem(
                where(section), section, None, "no such section", _suggest(section, [*SECTIONS, "services"])
            )
        elif not isinstance(table, dict):
            self._problem(
                where(section), section, table, "is a section", f"write [{section}] on a line before it"
            )
        elif section == "services":
            for name, own in table.items():
                if isinstance(own, dict):
                    for key, raw in own.items():
                        self._take(where(section, name, key), section, key, raw, name)
                else:
                    text = "is a service's name, or a prefix"
                    self._problem(
                        where(section, name), f"services.{name}", own, text, f'write [services."{name}"]'
                    )
        else:
            for key, raw in table.items():
                self._take(where(section, key), section, key, raw)

    def read_environment(self, environ: Mapping[str, str]) -> None:
        """Read all variables `POLYDOMO_SECTION_KEY`. An unknown key of a known section is a mistake."""
        known = {key.variable: key for key in KEYS.values()}
        sections = tuple(f"{PREFIX}{section.upper()}_" for section in [*SECTIONS, "services"])
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
                if variable.startswith(f"{PREFIX}SERVICES_"):
                    hint = "services are configured in the file"
                self._problem(variable, "", raw, "no such setting", hint)

    def read_flags(self, flags: Iterable[Flag]) -> None:
        """Read flags, which name a setting by its key in the file."""
        for flag, path, raw in flags:
            section, _, rest = path.partition(".")
            if section == "services":
                name, _, key = rest.rpartition(".")
                self._take(flag, section, key, raw, name.strip("\"'"))
            elif section in SECTIONS and rest:
                self._take(flag, section, rest, raw)
            else:
                self._problem(flag, path, raw, "no such setting", _suggest(path, KEYS))

    def _take(self, where: str, section: str, name: str, raw: object, service: str | None = None) -> None:
        """Take the value of a setting, of one service in the section `services`."""
        path = f"{section}.{name}" if service is None else _service_path(service, name)
        keys = SECTION_KEYS[section]
        if service is not None and not 0 < len(service.encode()) <= SERVICE_NAME_MAX:
            self._problem(where, path, raw, f"a service's name has 1 to {SERVICE_NAME_MAX} bytes")
        elif service is not None and "*" in service[:-1]:
            self._problem(where, path, raw, "* stands for the rest of a name, so only at its end")
        elif name not in keys:
            self._problem(where, path, raw, "no such setting", _suggest(name, keys))
        else:
            table = self.tree.setdefault(section, {})
            self._set(
                where, path, keys[name], raw, table if service is None else table.setdefault(service, {})
            )

    def _set(self, where: str, path: str, key: Key, raw: object, section: dict[str, Any]) -> None:
        """Set a value in its section and record its source, or record the problem."""
        try:
            section[key.name] = _parse(key, raw)
        except (ValueError, OverflowError) as error:
            hint = _suggest(raw, key.choices, "") if isinstance(raw, str) else ""
            because = f"{error}; " if isinstance(error, _Rejected) else ""
            self._problem(where, path, raw, f"{because}must be {key.allowed}", hint)
        else:
            self.sources[path] = where

    def _problem(self, where: str, key: str, value: object, message: str, hint: str = "") -> None:
        """Record a mistake.

        The value is included only if the setting is known to have no secret: an unknown name may be a misspelled
        `store.url`.
        """
        known = SERVICE_KEYS.get(key.rpartition(".")[2]) if key.startswith("services.") else KEYS.get(key)
        shown = "" if value is None else msgspec.json.encode(value, enc_hook=str).decode()
        if known is None or known.secret:
            shown = shown if isinstance(value, int | float) else ""
        self.problems.append(
            ConfigProblem(where, key, redaction.redact(shown), redaction.redact(message), hint)
        )


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


def _service_path(service: str, name: str) -> str:
    return f'services."{service}".{name}'


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
