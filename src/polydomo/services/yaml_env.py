"""YAML files with environment variables.

`${NAME}`, `${NAME:-default}`, and norfab's `{{ env.NAME }}` and `{{ env["NAME"] }}` stand for a variable, in keys and
values. Other template code is not run: it is reported as a mistake. `$${` is a plain `${`. norfab's `{# comments #}`
are removed.

Variables are substituted after the file was parsed as YAML, so a value cannot change its structure: in quotes it is
text, without quotes it is parsed as a YAML scalar (`port: ${PORT}` is a number). Variables in YAML comments are
ignored.
"""

from __future__ import annotations

import datetime
import re
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import yaml

from polydomo.errors import ConfigError

# The loader in C is six times faster, but recurses without a limit: deeply nested input must not reach it.
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEEPEST = 100

# Limit on the values of one file, against aliases of aliases that grow without bound.
MOST_VALUES = 1_000_000

_SPECIAL = re.compile(
    r"""
    (?P<escaped>\$\$\{[^}\n]*\}?)
    | \$\{(?P<name>[A-Za-z_]\w*)(?P<default>:-[^}\n]*)?\}
    | \{\{-?\s*env(?:\.(?P<dotted>[A-Za-z_]\w*)|\[\s*(?P<quote>["'])(?P<indexed>[^"'\n]+)(?P=quote)\s*\])\s*-?\}\}
    | (?P<comment>\{\#.*?\#\})
    | (?P<template>\{\{(?:[^\n]*?\}\})?|\{%(?:[^\n]*?%\})?)
    | (?P<odd>\$\{[^}\n]*\}?)
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_MARK = re.compile("\ue000(\\d+)\ue001")
_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("map", "seq", "set", "omap", "pairs")}


class _Variable(NamedTuple):
    """Occurrence of a variable, or of template code, which is an error if it is used."""

    match: re.Match[str]  # in the file's text
    name: str
    default: str | None = None
    error: str = ""

    @property
    def line(self) -> int:
        return self.match.string.count("\n", 0, self.match.start()) + 1

    @property
    def is_commented(self) -> bool:
        """Return whether the variable is most probably in a YAML comment."""
        text, start = self.match.string, self.match.start()
        return "#" in text[text.rfind("\n", 0, start) + 1 : start]


def read(path: Path, environ: Mapping[str, str]) -> Any:
    """Return the file's content as JSON types; raise ConfigError with the place of a mistake."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", hint="is the name right?") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not text in UTF-8", hint="save it as UTF-8") from error
    return parse(text, str(path), environ)


def parse(text: str, name: str, environ: Mapping[str, str]) -> Any:
    """Return the text's content like `read`; `name` stands for the file in errors."""
    variables: list[_Variable] = []

    def mark(match: re.Match[str]) -> str:
        if match["comment"]:
            return "\n" * match["comment"].count("\n")
        variables.append(_variable(match))
        # Keep the number of lines, so that the YAML parser's line numbers are right.
        return f"\ue000{len(variables) - 1}\ue001" + "\n" * match[0].count("\n")

    marked = _SPECIAL.sub(mark, text)
    reader = _Reader(name, variables, environ)
    try:
        return _read(marked, reader)
    except yaml.YAMLError as error:
        for variable in variables:
            if variable.error and not variable.is_commented:  # most probably the cause of YAML's error, too
                reader.reject(variable)
        raise ConfigError(
            f"{_place(name, error)}: is not YAML: {_problem(error)}",
            hint="compare its indentation and quotes",
        ) from error


class _Reader:
    """Conversion of YAML nodes to values. Aliases are copied: no two places in the result share a value."""

    def __init__(self, name: str, variables: list[_Variable], environ: Mapping[str, str]) -> None:
        self.name = name
        self.variables = variables
        self.environ = environ
        self.inside: set[int] = set()
        self.count = 0

    def value(self, loader: yaml.SafeLoader, node: yaml.Node) -> Any:
        self.count += 1
        if self.count > MOST_VALUES:
            raise ConfigError(
                f"{self.name}: has more than {MOST_VALUES} values", hint="aliases are copied out"
            )
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(loader, node)
        if id(node) in self.inside:
            raise ConfigError(
                f"{self.name}:{_line(node)}: contains itself", hint="it has an alias of its own parent"
            )
        if node.tag not in _TAGS:
            raise ConfigError(f"{self.name}:{_line(node)}: no tag {node.tag!r} is known here", hint="")
        self.inside.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                loader.flatten_mapping(node)  # `<<: *base`
                return {self._key(loader, key): self.value(loader, value) for key, value in list(node.value)}
            return [self.value(loader, item) for item in list(node.value)]
        finally:
            self.inside.discard(id(node))

    def reject(self, variable: _Variable) -> NoReturn:
        raise ConfigError(
            f"{self.name}:{variable.line}: {variable.error}", hint=_HINTS.get(variable.name, "")
        )

    def _key(self, loader: yaml.SafeLoader, node: yaml.Node) -> str:
        key = self.value(loader, node)
        if isinstance(key, dict | list):
            raise ConfigError(f"{self.name}:{_line(node)}: a list or mapping cannot be a key", hint="")
        if key is None or isinstance(key, bool):
            return {None: "null", True: "true", False: "false"}[key]
        return str(key)

    def _scalar(self, loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
        if "\ue000" in node.value:
            whole = _MARK.fullmatch(node.value)
            text = _MARK.sub(self._substitute, node.value)
            if node.style:  # quoted, or a block
                return text
            if whole and text.lstrip()[:1] in ("[", "{"):
                return self._collection(text)
            tag = loader.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
            node = yaml.ScalarNode(tag, text, node.start_mark, node.end_mark)
        try:
            return _plain(loader.construct_object(node, deep=True))
        except ValueError as error:  # such as a date with month 13
            raise ConfigError(f"{self.name}:{_line(node)}: {node.value!r}: {error}", hint="") from error

    def _collection(self, text: str) -> Any:
        """Return the list or mapping in a variable's value; variables in it are not substituted."""
        try:
            return _read(text, _Reader(self.name, [], {}))
        except yaml.YAMLError:
            return text

    def _substitute(self, match: re.Match[str]) -> str:
        number = int(match[1])
        if number >= len(self.variables):
            return match[0]
        variable = self.variables[number]
        if variable.error:
            self.reject(variable)
        value = self.environ.get(variable.name)
        if not value and variable.default is not None:
            value = variable.default
        if value is None:
            raise ConfigError(
                f"{self.name}:{variable.line}: the environment variable {variable.name} is not set",
                hint=f"set it, or write ${{{variable.name}:-default}}",
            )
        return value


_HINTS = {
    "{": "write {{ env.NAME }} or ${NAME:-default} for a variable; other template code is not run",
    "$": "write ${NAME} or ${NAME:-default}; a plain ${ is written $${",
}


def _read(text: str, reader: _Reader) -> Any:
    _check_depth(text, reader.name)
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        return None if node is None else reader.value(loader, node)
    finally:
        loader.dispose()


def _check_depth(text: str, name: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                raise ConfigError(f"{name}: is nested more than {DEEPEST} times", hint="")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _variable(match: re.Match[str]) -> _Variable:
    text = match[0]
    if match["escaped"]:
        return _Variable(match, "", text[1:])
    if match["template"] or match["odd"]:
        shown = text if len(text) <= 60 else f"{text[:60]}…"
        error = f"{shown} is template code" if match["template"] else f"{shown} is no variable"
        return _Variable(match, text[0], None, error)
    name = match["name"] or match["dotted"] or match["indexed"]
    default = match["default"]
    return _Variable(match, name, None if default is None else default[2:])


def _plain(value: Any) -> Any:
    """Return a scalar as a JSON type."""
    if isinstance(value, datetime.date):  # a datetime is one
        return value.isoformat()
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return value


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _place(name: str, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return name if mark is None else f"{name}:{mark.line + 1}"


def _problem(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    return _MARK.sub("…", str(problem))
