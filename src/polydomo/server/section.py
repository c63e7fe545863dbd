"""Description of a setting, and the base of the sections (`settings.py`, `security_settings.py`)."""

from __future__ import annotations

import msgspec


class Setting(msgspec.Struct, frozen=True):
    """Description of a setting.

    With `restart` a reload does not change it. With `secret` the value may contain a password or a key, which is masked
    wherever it is shown (`polydomo.redaction`).
    """

    doc: str
    unit: str = "text"
    least: float = 0  # lower bound of a number
    above: bool = False  # the bound itself is not allowed
    endless: bool = False  # the duration may be infinite
    restart: bool = False
    secret: bool = False


def flag(doc: str) -> Setting:
    """Describe a truth value."""
    return Setting(doc, "flag")


def listeners(doc: str, unit: str = "endpoint") -> Setting:
    """Describe the endpoints or addresses that peers of one kind connect to."""
    return Setting(doc, unit, restart=True)


def seconds(doc: str, *, zero: bool = False, endless: bool = False) -> Setting:
    """Describe a duration above 0, with `zero` from 0 on, with `endless` possibly infinite."""
    return Setting(doc, "duration", above=not zero, endless=endless)


def count(doc: str, ge: int = 1, *, restart: bool = False) -> Setting:
    """Describe a whole number of at least `ge`."""
    return Setting(doc, "count", ge, restart=restart)


def size(doc: str) -> Setting:
    """Describe a number of bytes."""
    return Setting(doc, "size", 1)


class Section(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Table of the configuration file. An unknown name is an error."""
