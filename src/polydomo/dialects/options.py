"""Job options as a JSON object, in the dialects that can carry one: DCP's metadata part `polydomo:{…}`, NFP's body
member `options`.

`{"key": "…", "delay": 1.5, "deadline": 60, "priority": 3, "wait": 10, "timeout": 30, "durable": true}`, all optional,
times in seconds from now.
"""

from __future__ import annotations

from typing import Final

import msgspec

from polydomo.core.policy import FOREVER
from polydomo.core.tracked_job import Options

KNOWN: Final = ("key", "delay", "deadline", "priority", "wait", "timeout", "durable")
KEY_MAX: Final = 255
LONGEST: Final = 10 * 366 * 86400.0  # ten years, which every clock can add
HIGHEST: Final = 9  # priorities are -9 to 9


def read(value: object, durable: bool = False) -> Options:
    """Return the options in a JSON value. Raises ValueError with a message for the client."""
    if not isinstance(value, dict):
        raise ValueError("options must be a JSON object")
    for name in value:
        if name not in KNOWN:
            raise ValueError(f"unknown option {name!r}; known options are {', '.join(KNOWN)}")
    options = Options()
    options.key = _key(value.get("key"))
    options.delay = _seconds(value, "delay", 0.0)
    options.deadline = _seconds(value, "deadline", FOREVER)
    options.wait = _seconds(value, "wait", -1.0)
    options.timeout = timeout(value.get("timeout"))
    options.priority = _priority(value.get("priority"))
    options.durable = _flag(value.get("durable"), durable)
    return options


def read_json(data: bytes, durable: bool = False) -> Options:
    """Return the options in JSON text. Raises ValueError with a message for the client."""
    try:
        value: object = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ValueError(f"options are not JSON: {error}") from None
    return read(value, durable)


def timeout(value: object) -> float:
    """Return the time limit of an attempt in seconds; 0 if there is none. Raises ValueError."""
    if value is None:
        return 0.0
    seconds = _number("timeout", value)
    if seconds <= 0:
        raise ValueError(f"timeout must be more than 0 seconds, not {value!r}")
    return seconds


def _seconds(value: dict[str, object], name: str, default: float) -> float:
    found = value.get(name)
    if found is None:
        return default
    seconds = _number(name, found)
    if seconds < 0:
        raise ValueError(f"{name} must not be negative, not {found!r}")
    return seconds


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} must be a number of seconds, not {value!r}")
    if not -LONGEST <= value <= LONGEST:  # false for NaN too
        raise ValueError(f"{name} must be at most ten years, not {value!r} seconds")
    return float(value)


def _key(value: object) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, str):
        raise ValueError(f"key must be a string, not {value!r}")
    key = value.encode()
    if not 0 < len(key) <= KEY_MAX:
        raise ValueError(f"key must have 1 to {KEY_MAX} bytes, not {len(key)}")
    return key


def _priority(value: object) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not -HIGHEST <= value <= HIGHEST:
        raise ValueError(f"priority must be a whole number from -{HIGHEST} to {HIGHEST}, not {value!r}")
    return value


def _flag(value: object, default: bool) -> bool:
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ValueError(f"durable must be true or false, not {value!r}")
    return value
