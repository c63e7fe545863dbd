"""Parsing and formatting of durations, sizes and flags: 250ms, 2h, 64MiB, on."""

from __future__ import annotations

import math
import re

_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*")
_DURATION = re.compile(f"(?:{_DURATION_PART.pattern})+")
_SIZE_UNITS = {
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?b)", re.IGNORECASE)
_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


def parse_duration(value: object) -> float:
    """Return seconds; raise ValueError if the value is no duration."""
    if isinstance(value, str):
        text = value.strip().lower()
        if text == "forever":
            return math.inf
        if _DURATION.fullmatch(text):
            return math.fsum(
                float(number) * _DURATION_UNITS[unit] for number, unit in _DURATION_PART.findall(text)
            )
        value = float(text)
    return float(_number(value))


def parse_size(value: object) -> int:
    """Return bytes; raise ValueError if the value is no size."""
    if isinstance(value, str):
        if "+" in value:
            return sum(parse_size(part) for part in value.split("+"))
        match = _SIZE.fullmatch(value.strip())
        if match:
            return int(float(match[1]) * _SIZE_UNITS[match[2].lower()])
    return parse_count(value)


def parse_count(value: object) -> int:
    """Return a whole number; raise ValueError if the value is none."""
    number = int(value) if isinstance(value, str) else _number(value)
    if number != int(number):
        raise ValueError("not a whole number")
    return int(number)


def parse_number(value: object) -> float:
    """Return a number; raise ValueError if the value is none."""
    return float(_number(float(value) if isinstance(value, str) else value))


def parse_flag(value: object) -> bool:
    """Return a truth value, also from the words used in environment variables."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _TRUE + _FALSE:
        return value.lower() in _TRUE
    raise ValueError("neither true nor false")


def show_duration(value: float) -> str:
    """Return a duration as text: 250ms, 2.5s, 2m, 1m30s, 1h, forever."""
    if math.isinf(value):
        return "forever"
    if 0 < value < 1:
        return f"{value * 1000:g}ms"
    if value < 60 or value != int(value):
        return f"{value:.12g}s"
    shown, left = "", int(value)
    for unit in ("d", "h", "m", "s"):
        whole, left = divmod(left, int(_DURATION_UNITS[unit]))
        shown += f"{whole}{unit}" if whole else ""
    return shown


def show_size(value: int) -> str:
    """Return a size as text in one unit if the number is short, else in several, else in bytes: 64MiB, 64MiB+64KiB."""
    for unit in ("TiB", "TB", "GiB", "GB", "MiB", "MB", "KiB", "kB"):
        whole, rest = divmod(value, _SIZE_UNITS[unit.lower()])
        if whole and not rest and whole < 10_000:
            return f"{whole}{unit}"
    for unit in ("TiB", "GiB", "MiB"):
        whole, rest = divmod(value, _SIZE_UNITS[unit.lower()])
        if whole and rest % 1024 == 0:
            return f"{whole}{unit}+{show_size(rest)}"
    return f"{value}B"


def _number(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ValueError("not a number")
    return value
