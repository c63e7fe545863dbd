"""Conversion of Arrow values to JSON. Values without a JSON form become text."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

Convert = Callable[[Any], Any]


def rows(table: pa.Table) -> list[list[Any]]:
    """Return the rows, each a list in the order of the columns."""
    columns = [_column(table.column(number)) for number in range(table.num_columns)]
    if not columns:
        return [[] for _ in range(table.num_rows)]
    return [list(row) for row in zip(*columns, strict=True)]


def _column(column: pa.ChunkedArray) -> list[Any]:
    convert = converter(column.type)
    values: list[Any] = column.to_pylist()
    return values if convert is None else [None if value is None else convert(value) for value in values]


def converter(kind: pa.DataType) -> Convert | None:
    """Return the converter for values of a type; None: they need none."""
    from pyarrow import types

    if types.is_floating(kind):
        return _number
    if types.is_timestamp(kind):
        return _instant if kind.tz else datetime.isoformat
    if types.is_date(kind) or types.is_time(kind):
        return lambda value: value.isoformat()
    if types.is_decimal(kind):
        return str
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return lambda value: b64encode(value).decode()
    if types.is_duration(kind):
        return lambda value: value.total_seconds()
    if types.is_map(kind):
        return _pairs(kind)
    if types.is_list(kind) or types.is_large_list(kind):
        each = converter(kind.value_type) or _same
        return lambda value: [None if item is None else each(item) for item in value]
    if types.is_struct(kind):
        return _members(kind)
    return None


def _same(value: Any) -> Any:
    return value


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _instant(value: datetime) -> str:
    return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def _pairs(kind: pa.MapType) -> Convert:
    """Convert a map with text keys to an object, any other to a list of pairs."""
    from pyarrow import types

    key = converter(kind.key_type) or _same
    item = converter(kind.item_type) or _same
    named = types.is_string(kind.key_type) or types.is_large_string(kind.key_type)

    def convert(value: list[tuple[Any, Any]]) -> Any:
        found = [(key(name), None if one is None else item(one)) for name, one in value]
        return dict(found) if named else found

    return convert


def _members(kind: pa.StructType) -> Convert:
    each = {field.name: converter(field.type) or _same for field in kind}

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        return {name: None if value[name] is None else make(value[name]) for name, make in each.items()}

    return convert
