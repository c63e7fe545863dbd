"""MemoDB-JSON: values as JSON without loss.

Null, booleans, texts and lists are themselves; a number is an integer. Other values are objects with one member that
names the type:

    {"float": "3.142"}   {"float": "-0"}   {"float": "NaN"}   {"float": "-Infinity"}
    {"base64": "YXNjaWk="}                 a byte string, padded
    {"cid": "uAXEAAfY"}                    a link, always base64url
    {"map": {"key": ...}}                  a map; no other object is one

The output is deterministic: no white space, keys in CBOR's order, texts as in RFC 8785, floats as ECMAScript prints
numbers. JSON itself is parsed and printed by the standard library: msgspec drops duplicate keys silently.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from math import copysign
from types import MappingProxyType
from typing import Any, Final, NoReturn

from polydomo.web.memodb.cid import BadCid, Cid, shorten
from polydomo.web.memodb.dagcbor import DEPTH_MAX, INTEGER_MAX, INTEGER_MIN, ITEMS_MAX, Node, in_order

_SPECIAL: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class BadJson(ValueError):
    """Text that is not a value in MemoDB-JSON."""


def decode(data: bytes) -> Node:
    """Return the value that a JSON text encodes."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadJson(f"not UTF-8: {error}") from None
    _check_size(data)
    try:
        parsed = json.loads(
            text,
            object_pairs_hook=_JsonObject,
            parse_int=_integer,
            parse_float=_reject_number,
            parse_constant=_reject_number,
        )
    except json.JSONDecodeError as error:
        raise BadJson(f"{error.msg}, line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise BadJson(f"lists and maps are nested deeper than {DEPTH_MAX}") from None
    return _node(parsed, 0)


def encode(node: Node) -> bytes:
    """Return the deterministic JSON text of a value."""
    return write(plain(node))


def write(objects: Any) -> bytes:
    """Return the text of what `plain` returned."""
    return json.dumps(objects, ensure_ascii=False, separators=(",", ":")).encode()


def plain(node: Node, inside: Mapping[Cid, Any] = MappingProxyType({})) -> Any:
    """Return a value as objects of JSON. Links in `inside` are replaced by their values, as this function returns
    them."""
    if node is None or isinstance(node, (bool, int, str)):
        return node
    if isinstance(node, float):
        return {"float": float_text(node)}
    if isinstance(node, bytes):
        return {"base64": b64encode(node).decode()}
    if isinstance(node, Cid):
        return {"node": inside[node]} if node in inside else {"cid": str(node)}
    if isinstance(node, list):
        return [plain(one, inside) for one in node]
    return {"map": {key: plain(node[key], inside) for key in in_order(node)}}


def float_text(number: float) -> str:
    """Return a float as ECMAScript prints it, except that -0 is `-0`."""
    if number != number:
        return "NaN"
    sign = "-" if copysign(1, number) < 0 else ""
    number = abs(number)
    if number == float("inf"):
        return f"{sign}Infinity"
    if number == 0:
        return f"{sign}0"
    # The shortest digits that identify this number, and the position of the point among them.
    mantissa, _, exponent = f"{number!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    count = len(digits)
    if count <= point <= 21:
        return sign + digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    power = point - 1
    rest = f".{digits[1:]}" if count > 1 else ""
    return f"{sign}{digits[0]}{rest}e{'+' if power > 0 else '-'}{abs(power)}"


class _JsonObject:
    """An object as parsed, before its type is known."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


def _node(parsed: Any, depth: int) -> Node:
    if isinstance(parsed, str):
        return _text(parsed)
    if isinstance(parsed, list):
        _check_depth(depth)
        return [_node(one, depth + 1) for one in parsed]
    if isinstance(parsed, _JsonObject):
        return _special(parsed, depth)
    return parsed


def _special(found: _JsonObject, depth: int) -> Node:
    names = [name for name, _ in found.pairs]
    if len(names) != 1 or names[0] not in ("map", *_TEXTS):
        raise BadJson(
            f"unknown object with the members {_listed(names)}: "
            'a map is written {"map": {...}}, other objects are {"cid"}, {"base64"} or {"float"}'
        )
    name, value = found.pairs[0]
    if name == "map":
        if not isinstance(value, _JsonObject):
            raise BadJson(f'{{"map": ...}} holds an object, not {_kind(value)}')
        return _map(value, depth)
    if not isinstance(value, str):
        raise BadJson(f'{{"{name}": ...}} holds a string, not {_kind(value)}')
    return _TEXTS[name](value)


def _map(found: _JsonObject, depth: int) -> dict[str, Node]:
    _check_depth(depth)
    made: dict[str, Node] = {}
    for key, value in found.pairs:
        key = _text(key)
        if key in made:
            raise BadJson(f"the key {shorten(key)} is twice in a map")
        made[key] = _node(value, depth + 1)
    return made


def _link(text: str) -> Cid:
    if not text.startswith("u"):
        raise BadJson(f"a link is written in base64url and begins with u, not {shorten(text)}")
    try:
        return Cid.parse(text)
    except BadCid as error:
        raise BadJson(f"invalid link: {error}") from None


def _bytes(text: str) -> bytes:
    try:
        data = b64decode(text, validate=True)
    except ValueError:  # binascii.Error is one
        data = b""
    if b64encode(data).decode() != text:
        raise BadJson(f"{shorten(text)} is not base64 with its padding")
    return data


def _float(text: str) -> float:
    if text in _SPECIAL:
        return _SPECIAL[text]
    if not _NUMBER.fullmatch(text) or len(text) > 1100:
        raise BadJson(f"{shorten(text)} is not a float")
    return float(text)


# Decoders of the objects that hold a text, by the name of their member.
_TEXTS: Final[dict[str, Callable[[str], Node]]] = {"cid": _link, "base64": _bytes, "float": _float}


def _text(text: str) -> str:
    """Return the text with lone surrogates replaced by U+FFFD, as MemoDB does."""
    if text.isascii():
        return text
    return _SURROGATE.sub("\ufffd", text)


def _integer(text: str) -> int:
    if len(text) > 20 or not INTEGER_MIN <= (number := int(text)) <= INTEGER_MAX:
        raise BadJson(f"{shorten(text)} does not fit into 64 bits")
    return number


def _reject_number(text: str) -> NoReturn:
    raise BadJson(f'{shorten(text)} is not an integer; a float is written {{"float": "{text[:40]}"}}')


def _check_depth(depth: int) -> None:
    if depth >= DEPTH_MAX:
        raise BadJson(f"lists and maps are nested deeper than {DEPTH_MAX}")


def _check_size(data: bytes) -> None:
    """Limit the number of items before parsing: many small items take far more memory than their text."""
    if _items(data) > ITEMS_MAX and _items(_STRING.sub(b"", data)) > ITEMS_MAX:
        raise BadJson(f"more than {ITEMS_MAX} items in one value")


def _items(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _kind(value: object) -> str:
    return "an object" if isinstance(value, _JsonObject) else f"{shorten(value)}"


def _listed(names: list[str]) -> str:
    return ", ".join(shorten(name) for name in names[:5]) or "none"
