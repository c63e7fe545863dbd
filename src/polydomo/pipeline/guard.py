"""What strangers may ask in SQL: one query over the tables, and nothing else.

Spark's own parser reads the text, so that what is judged is what is run. Everything in the plan that it makes must be
known here: operators, expressions, functions, relations. It is a list of what is allowed, not of what is forbidden:
what a later Spark can do besides is refused until somebody has looked at it.

A query is judged twice: as parsed, before Spark looks anything up or runs anything (commands run while they are
analysed), and as analysed, where names have become what they mean. The second look decides what a name stands for:
its relations must be our views, or made of the query's own rows, and its leaf expressions must not tell of the machine
(`SELECT user` names no column and calls no function).

Some allowed queries can still use up memory or keep a thread for ever. `Checked.light` tells those that cannot.

Not on the list, among others: commands of every kind; relations that are files (``parquet.`/etc/…` ``); functions that
call Java, run programs or read files; those that tell of the machine (`input_file_name`, `current_user`); those that
make much out of little (`repeat`, `sequence`); hints; variables (`${env:HOME}` would be replaced by Spark's parser).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from polydomo.errors import PolydomoError
from polydomo.pipeline import guard_lists as lists

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Characters. A longer text is not a question but an attempt to keep the parser busy.
LONGEST: Final = 64 * 1024

# Nodes of a plan and what hangs on them. Every further one costs a third of a millisecond or so.
MOST_NODES: Final = 20_000

# A light query has at most so many characters, brackets, nodes as parsed, and nodes and SELECTs as analysed: nested
# SELECTs multiply, and so do aliases that are used twice.
LIGHT_TEXT: Final = 2_000
LIGHT_BRACKETS: Final = 40
LIGHT_PARSED: Final = 400
LIGHT_ANALYSED: Final = 800
LIGHT_SELECTS: Final = 3


class BadQuery(PolydomoError):
    """It is not SQL, or names what is not there."""

    code = "bad-query"


class NotAllowed(PolydomoError):
    """It is SQL, but not one query over the tables."""

    code = "not-allowed"
    hint = "one SELECT over the tables is allowed, with the functions that docs/how-to/sql-service.md lists"


class Checked(NamedTuple):
    """A query that may be run."""

    sql: str
    tables: frozenset[str]  # those it may read: a name may also be that of a WITH
    light: bool = False  # it ends when it is told to, and needs little memory until then


def check(session: SparkSession, sql: str, tables: Collection[str]) -> Checked:
    """The query if it is allowed, else BadQuery or NotAllowed. `session`: its own, as it will be run in."""
    if not sql.strip():
        raise BadQuery(
            "there is no query", hint="send SQL, such as SELECT service, count(*) FROM jobs GROUP BY 1"
        )
    if len(sql) > LONGEST:
        raise NotAllowed(f"a query of {len(sql)} characters: at most {LONGEST} are allowed", hint="")
    if "${" in sql:
        raise NotAllowed(
            "'${' would be a variable of Spark's", hint="write '$' || '{' if it is meant as text"
        )
    visitor = _Visitor({name.lower() for name in tables})
    visitor.visit(_parse(session, sql))
    return Checked(sql, visitor.judged(), may_be_light(sql) and visitor.light)


def may_be_light(sql: str) -> bool:
    """Return whether a query's text is small enough to be parsed without fear."""
    return len(sql) <= LIGHT_TEXT and sum(map(sql.count, "([<")) <= LIGHT_BRACKETS


def check_analysed(frame: DataFrame, tables: Collection[str]) -> bool:
    """Raise NotAllowed if the analysed query reads anything but `tables`, or tells of the machine. Return whether it is
    small enough for a light one."""
    jframe: Any = frame._jdf
    known = {name.lower() for name in tables}
    seen = selects = 0
    for node in _analysed(msgspec.json.decode(jframe.queryExecution().analyzed().toJSON()), known):
        name = node["class"].removeprefix(lists.CATALYST)
        seen += 1
        selects += name in lists.SELECTS
        if name == lists.VIEW or (not node["num-children"] and name not in lists.LEAF_NODES):
            raise NotAllowed(f"{_spoken(name)} is not allowed in a query")
    return seen <= LIGHT_ANALYSED and selects <= LIGHT_SELECTS


def _analysed(found: Any, tables: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield the nodes of a plan as Spark writes it in JSON, with the expressions and plans that hang on them, but for
    what is below one of our views: a tree is a list of its nodes, each before its children."""
    stack = [found]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            stack.extend(one.values())
        elif isinstance(one, list):
            trees = bool(one) and isinstance(one[0], dict) and "class" in one[0]
            for node in _without_views(one, tables) if trees else ():
                yield node
                stack.extend(node.values())
            if not trees:
                stack.extend(one)


def _without_views(tree: list[dict[str, Any]], tables: Collection[str]) -> Iterator[dict[str, Any]]:
    skipped = 0  # nodes to come that are below a view of ours
    for node in tree:
        if skipped:
            skipped += node["num-children"] - 1
        elif node["class"] == lists.CATALYST + lists.VIEW and _is_ours(node, tables):
            skipped = node["num-children"]
        else:
            yield node


def _is_ours(view: dict[str, Any], tables: Collection[str]) -> bool:
    """Views of the session are ours: nobody else can make one."""
    name = view["desc"]["identifier"]
    return bool(view["isTempView"]) and "database" not in name and name["table"].lower() in tables


def _parse(session: SparkSession, sql: str) -> Any:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import ParseException, PySparkException

    jvm: Any = session._jvm
    # The parser goes by the settings of the thread's session, whosever parser it is.
    jvm.SparkSession.setActiveSession(session._jsparkSession)
    try:
        return session._jsparkSession.sessionState().sqlParser().parsePlan(sql)
    except ParseException as error:
        raise BadQuery(first_lines(str(error)), hint="") from None
    except (Py4JJavaError, PySparkException) as error:  # it is understood, and switched off
        said = str(getattr(error, "java_exception", None) or error)
        raise NotAllowed(first_lines(said[max(0, said.find("[")) :]), hint="") from None


def first_lines(text: str) -> str:
    """Of an error of Spark's: without the query and the plan that follow it."""
    kept = text.strip().split("\n\n")[0].split("\n== SQL")[0].split(";\n")[0]
    return " ".join(kept.split())


class _Visitor:
    """Looks at everything that a plan holds, wherever it hangs: children, expressions, subqueries, CTEs, windows."""

    def __init__(self, tables: set[str]) -> None:
        self._tables = tables
        self._read: set[str] = set()
        self._named: set[str] = set()  # by WITH
        self._seen = 0
        self._heavy = False

    @property
    def light(self) -> bool:
        """Whether all that was seen is on the list of what costs little."""
        return not self._heavy and self._seen <= LIGHT_PARSED

    def visit(self, node: Any) -> None:
        """Down to the leaves."""
        stack = [node]
        while stack:
            found = stack.pop()
            if found is None or isinstance(found, str | int | float | bytes | Decimal):
                continue  # py4j has made it Python's own
            self._seen += 1
            if self._seen > MOST_NODES:
                raise NotAllowed("the query is too large", hint="")
            stack.extend(self._inside(found))

    def judged(self) -> frozenset[str]:
        """The tables that may be read, once everything has been seen. What a name means where is not decided here."""
        unknown = sorted(self._read - self._tables - self._named)
        if unknown:
            known = ", ".join(sorted(self._tables)) or "none yet"
            raise NotAllowed(f"there is no table {unknown[0]}", hint=f"there are {known}")
        return frozenset(self._read & self._tables)

    def _inside(self, node: Any) -> Iterator[Any]:
        """What hangs on a node, which must be one that is known."""
        name = node.getClass().getName()
        if name.startswith(lists.CATALYST):
            name = name.removeprefix(lists.CATALYST)
            if name not in lists.NODES:
                raise NotAllowed(f"{_spoken(name)} is not allowed in a query")
            self._heavy |= name not in lists.LIGHT_NODES
            self._look_at(name, node)
            if name != lists.CONSTANTS:
                yield from _fields(node)
        elif name.startswith(lists.COLLECTIONS):
            found = node.iterator()
            while found.hasNext():
                yield found.next()
        elif name.startswith(lists.TUPLES):
            yield from _fields(node)
        elif not name.startswith(lists.LEAVES):
            raise NotAllowed(f"{_spoken(name)} is not allowed in a query")

    def _look_at(self, name: str, node: Any) -> None:
        if name == "analysis.UnresolvedRelation":
            self._relation(node)
        elif name in ("analysis.UnresolvedFunction", "analysis.UnresolvedGenerator"):
            of = node.nameParts() if name.endswith("Function") else node.name().nameParts()
            self._heavy |= _allowed(_strings(of), lists.FUNCTIONS, "function") not in lists.LIGHT_FUNCTIONS
        elif name == "analysis.UnresolvedTableValuedFunction":
            _allowed(_strings(node.name()), lists.TABLE_FUNCTIONS, "table function")
        elif name == "analysis.UnresolvedAttribute":
            for part in _strings(node.nameParts()):
                if part.lower().startswith("_metadata"):
                    raise NotAllowed("columns of files (_metadata) are not allowed in a query", hint="")
        elif name == "plans.logical.UnresolvedWith":
            relations = node.cteRelations().iterator()
            while relations.hasNext():
                self._named.add(relations.next()._1().lower())

    def _relation(self, node: Any) -> None:
        parts = _strings(node.multipartIdentifier())
        shown = ".".join(parts)
        if len(parts) != 1:
            raise NotAllowed(f"{shown} is not one of the tables", hint="a table's name has no dot in it")
        if node.isStreaming() or not node.options().isEmpty():
            raise NotAllowed(f"{shown} is read as it is: without STREAM and options", hint="")
        self._read.add(parts[0].lower())


def _allowed(parts: list[str], names: frozenset[str], what: str) -> str:
    if len(parts) != 1 or parts[0].lower() not in names:
        raise NotAllowed(f"the {what} {'.'.join(parts)} is not allowed in a query")
    return parts[0].lower()


def _fields(node: Any) -> Iterator[Any]:
    for number in range(node.productArity()):
        yield node.productElement(number)


def _strings(sequence: Any) -> list[str]:
    return [str(sequence.apply(number)) for number in range(sequence.size())]


def _spoken(name: str) -> str:
    """A class of Spark's as a person would call it: `ShowTables` is SHOW TABLES."""
    last = name.rsplit(".", 1)[-1].rstrip("$").removeprefix("Unresolved").removesuffix("Command")
    words = "".join(f" {letter}" if letter.isupper() else letter for letter in last.split("$")[0])
    return words.strip().upper()
