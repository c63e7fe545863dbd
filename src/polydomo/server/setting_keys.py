"""Keys of the settings: their places, types and allowed values, made from the sections, and the values in text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from ipaddress import ip_network
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin

import msgspec

from polydomo import redaction
from polydomo.core.services import SERVICE_NAME_MAX
from polydomo.errors import ConfigError
from polydomo.security.patterns import ANY, ORIGINS
from polydomo.security.roles import BUILT_IN, Grant
from polydomo.server import endpoints, units
from polydomo.server.section import Section, Setting
from polydomo.server.security_settings import ALGORITHMS, QuotaSection, RoleSection
from polydomo.server.settings import ServiceSection, Settings

# Prefix of the environment variables.
PREFIX = "POLYDOMO_"

# Allowed values, by unit.
ALLOWED = {
    "size": "bytes or a text such as 64KiB, 64MiB, 1GB",
    "flag": "true or false",
    "endpoint": "endpoints such as tcp://127.0.0.1:5555, tcp://[::1]:5555, ipc:///run/x.sock",
    "nng": "endpoints such as tcp://127.0.0.1:5555, tls+tcp://*:5556, ipc:///run/x.sock",
    "address": "addresses such as 127.0.0.1:8080, [::1]:8080, https://*:8443",
    "host": "names such as broker.example, *.example, or *; without a port",
    "origin": "origins such as https://dashboard.example, http://localhost:3000, or *",
    "algorithm": f"of {', '.join(ALGORITHMS)}",
    "network": "addresses and networks such as 10.0.0.5, 10.1.0.0/16, fd00::/8",
    "grant": "services such as resize, mail.*, *, or resize@WORKER",
    "role": "names of roles",
    "rate": "a number above 0",
}
# Parsers of single values, by unit.
_PARSERS: dict[str, Callable[[object], float]] = {
    "duration": units.parse_duration,
    "size": units.parse_size,
    "count": units.parse_count,
    "flag": units.parse_flag,
    "rate": units.parse_number,
}

# Checks of a list's items, by unit: they return None or raise an error for an invalid item.
_CHECKS: dict[str, Callable[[str], object]] = {
    "endpoint": endpoints.parse_listener,
    "nng": partial(endpoints.parse_listener, tls=True),
    "address": endpoints.parse_address,
    "host": re.compile(r"\*|(\*\.)?[0-9A-Za-z_-]+(\.[0-9A-Za-z_-]+)*\.?").fullmatch,
    "origin": re.compile(r"\*|[a-z][a-z0-9+.-]*://[^/?#@\s]+").fullmatch,
    "algorithm": re.compile("|".join(ALGORITHMS)).fullmatch,
    "network": partial(ip_network, strict=False),
    "grant": partial(Grant.parse, ""),
    "role": str,
    "text": str,
}


# Descriptions of all settings, made from the sections.


class Key(Setting, frozen=True, kw_only=True):
    """Setting with its place, and what follows from its type."""

    section: str
    name: str
    many: bool
    choices: tuple[str, ...]

    def of(self, settings: Settings) -> Any:
        """Return the value of the setting, which is not one of `NAMED`."""
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


def _keys(section: str, struct: type[Section]) -> dict[str, Key]:
    return {field.name: _key(section, field) for field in msgspec.structs.fields(struct)}


SECTIONS: dict[str, type[Section]] = {
    field.name: field.type for field in msgspec.structs.fields(Settings) if isinstance(field.type, type)
}
SECTION_KEYS = {section: _keys(section, struct) for section, struct in SECTIONS.items()}
KEYS: dict[str, Key] = {key.path: key for keys in SECTION_KEYS.values() for key in keys.values()}


# Sections of the form [SECTION.NAME], and [principals], whose keys are names.


class NamedSections(NamedTuple):
    """All sections [SECTION.NAME]: their keys, what a NAME is, and a function that returns what is wrong with one."""

    keys: dict[str, Key]
    meaning: str
    mistake: Callable[[str], str]


def _service_mistake(name: str) -> str:
    if not 0 < len(name.encode()) <= SERVICE_NAME_MAX:
        return f"a service's name has 1 to {SERVICE_NAME_MAX} bytes"
    return "* stands for the rest of a name, so only at its end" if ANY in name[:-1] else ""


_ROLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


def _role_mistake(name: str) -> str:
    if name in BUILT_IN:
        return "is a built-in role; choose another name"
    return "" if _ROLE.fullmatch(name) else "a role's name has 1 to 64 letters, digits, dots, _ and -"


_PRINCIPAL = re.compile(r"[A-Za-z0-9_*][A-Za-z0-9._@*-]{0,63}")


def principal_mistake(name: str) -> str:
    """Return what is wrong with the name or pattern of a principal."""
    origin, colon, rest = name.partition(":")
    if not colon:
        return (
            "" if _PRINCIPAL.fullmatch(name) else "a principal's name has 1 to 64 letters, digits and . _ @ -"
        )
    if origin not in ORIGINS or not rest:
        known = ", ".join(f"{origin}:NAME" for origin in ORIGINS)
        return f"a principal's name with a colon is one of {known}"
    return ""


NAMED = {
    "services": NamedSections(
        _keys("services", ServiceSection), "is a service's name, or a prefix", _service_mistake
    ),
    "roles": NamedSections(_keys("roles", RoleSection), "is a role's name", _role_mistake),
    "quotas": NamedSections(
        _keys("quotas", QuotaSection), "is a principal's name, or a pattern", principal_mistake
    ),
}
SERVICE_KEYS = NAMED["services"].keys

# The section whose keys are principals, and the key that stands for all of them.
PRINCIPALS = "principals"
PRINCIPAL = Key(
    doc="roles of the principals with this name, or whose names match",
    unit="role",
    section=PRINCIPALS,
    name="NAME",
    many=True,
    choices=(),
)

ALL_SECTIONS = [*SECTIONS, *NAMED, PRINCIPALS]


def named_path(section: str, name: str, key: str = "") -> str:
    """Return the path of a setting in [SECTION.NAME], or of an entry of [SECTION]."""
    return f'{section}."{name}"' + (f".{key}" if key else "")


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


class Rejected(ValueError):
    """Rejection of a value with a reason beyond `Key.allowed`."""


def parse(key: Key, raw: object) -> object:
    """Return the value of a setting; raise ValueError if it is not allowed."""
    if key.many:
        return _parse_list(key, raw)
    if key.unit == "text":
        if not isinstance(raw, str) or (key.choices and raw not in key.choices):
            raise ValueError
        return raw
    value = _PARSERS[key.unit](raw)
    if value == math.inf and not key.endless:
        raise Rejected("forever is not allowed")
    if value < key.least or (key.above and value == key.least):
        raise ValueError
    return value


def _parse_list(key: Key, raw: object) -> list[str]:
    items = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError
    found = [item.strip() for item in items if item.strip()]
    if not found:
        raise Rejected("at least one is needed")
    for item in found:
        try:
            checked = _CHECKS[key.unit](item)
        except ConfigError as error:
            raise Rejected(error.message) from error
        if checked is None:
            raise ValueError
        if found.count(item) > 1 and not endpoints.is_any_port(item):
            raise Rejected(f"{redaction.redact_option(item)} is listed twice")
    return found
