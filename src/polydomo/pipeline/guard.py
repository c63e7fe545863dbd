"""Checks of untrusted SQL: only a single query over the tables is allowed.

Spark's own parser reads the text, so the plan that is checked is the plan that is run. Everything in it must be on an
allow list: operators, expressions, functions, relations. Features of a later Spark are refused until they have been
reviewed and added.

A query is checked twice: as parsed, before Spark resolves or runs anything (commands run during analysis), and as
analysed, where names are resolved. The second check covers what a name refers to: relations must be our views, or made
of the query's own rows, and leaf expressions must not reveal the machine (`SELECT user` names no column and calls no
function).

Some allowed queries can still exhaust memory or block a thread forever. `Checked.light` marks those that cannot.

Not allowed, among others: commands of every kind; relations that are files (``parquet.`/etc/…` ``); functions that
call Java, run programs or read files; functions that reveal the machine (`input_file_name`, `current_user`); functions
that expand small input (`repeat`, `sequence`); hints; variables (Spark's parser would substitute `${env:HOME}`).
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

# Characters. A longer text could keep the parser busy.
LONGEST: Final = 64 * 1024

# Nodes of a plan, with everything attached to them. Each costs about a third of a millisecond.
MOST_NODES: Final = 20_000

# Limits of a light query: characters, brackets, nodes as parsed, and nodes and SELECTs as analysed. Nested SELECTs
# multiply, and so do aliases that are used twice.
LIGHT_TEXT: Final = 2_000
LIGHT_BRACKETS: Final = 40
LIGHT_PARSED: Final = 400
LIGHT_ANALYSED: Final = 800
LIGHT_SELECTS: Final = 3


class BadQuery(PolydomoError):
    """The text is not SQL, or refers to a missing name."""

    code = "bad-query"


class NotAllowed(PolydomoError):
    """The SQL is not a single query over the tables."""

    code = "not-allowed"
    hint = "one SELECT over the tables is allowed, with the functions that docs/how-to/sql-service.md lists"


class Checked(NamedTuple):
    """A query that is allowed to run."""

    sql: str
    tables: frozenset[str]  # tables it may read; a name may also be that of a WITH
    light: bool = False  # can be cancelled, and needs little memory until then


def check(session: SparkSession, sql: str, tables: Collection[str]) -> Checked:
    """Return the query if it is allowed; raise BadQuery or NotAllowed. `session`: the one it will run in."""
    if not sql.strip():
        raise BadQuery(
            "the query is empty", hint="send SQL, such as SELECT service, count(*) FROM jobs GROUP BY 1"
        )
    if len(sql) > LONGEST:
        raise NotAllowed(f"the query has {len(sql)} characters: at most {LONGEST} are allowed", hint="")
    if "${" in sql:
        raise NotAllowed("'${' starts a Spark variable", hint="write '$' || '{' if it is meant as text")
    visitor = _Visitor({name.lower() for name in tables})
    visitor.visit(_parse(session, sql))
    return Checked(sql, visitor.judged(), may_be_light(sql) and visitor.light)


def may_be_light(sql: str) -> bool:
    """Return whether a query's text is small enough to be parsed safely."""
    return len(sql) <= LIGHT_TEXT and sum(map(sql.count, "([<")) <= LIGHT_BRACKETS


def check_analysed(frame: DataFrame, tables: Collection[str]) -> bool:
    """Raise NotAllowed if the analysed query reads anything but `tables`, or reveals the machine. Return whether it is
    small enough for a light query."""
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
    """Yield the nodes of a plan in Spark's JSON form, with the expressions and plans attached to them, but without what
    is below one of our views. A tree is a list of its nodes, each before its children."""
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
    skipped = 0  # remaining nodes below one of our views
    for node in tree:
        if skipped:
            skipped += node["num-children"] - 1
        elif node["class"] == lists.CATALYST + lists.VIEW and _is_ours(node, tables):
            skipped = node["num-children"]
        else:
            yield node


def _is_ours(view: dict[str, Any], tables: Collection[str]) -> bool:
    """Return whether a view is ours: a temporary view, which a query cannot create."""
    name = view["desc"]["identifier"]
    return bool(view["isTempView"]) and "database" not in name and name["table"].lower() in tables


def _parse(session: SparkSession, sql: str) -> Any:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import ParseException, PySparkException

    jvm: Any = session._jvm
    # The parser uses the settings of the thread's active session, even another session's parser.
    jvm.SparkSession.setActiveSession(session._jsparkSession)
    try:
        return session._jsparkSession.sessionState().sqlParser().parsePlan(sql)
    except ParseException as error:
        raise BadQuery(first_lines(str(error)), hint="") from None
    except (Py4JJavaError, PySparkException) as error:  # parsed, but disabled
        said = str(getattr(error, "java_exception", None) or error)
        raise NotAllowed(first_lines(said[max(0, said.find("[")) :]), hint="") from None


def first_lines(text: str) -> str:
    """Return the message of a Spark error without the query and the plan that follow it."""
    kept = text.strip().split("\n\n")[0].split("\n== SQL")[0].split(";\n")[0]
    return " ".join(kept.split())


class _Visitor:
    """Checks every part of a plan: children, expressions, subqueries, CTEs, windows."""

    def __init__(self, tables: set[str]) -> None:
        self._tables = tables
        self._read: set[str] = set()
        self._named: set[str] = set()  # names defined by WITH
        self._seen = 0
        self._heavy = False

    @property
    def light(self) -> bool:
        """Return whether every node is on the list of light ones."""
        return not self._heavy and self._seen <= LIGHT_PARSED

    def visit(self, node: Any) -> None:
        """Check a node and everything below it."""
        stack = [node]
        while stack:
            found = stack.pop()
            if found is None or isinstance(found, str | int | float | bytes | Decimal):
                continue  # py4j converted it to a Python value
            self._seen += 1
            if self._seen > MOST_NODES:
                raise NotAllowed("the query is too large", hint="")
            stack.extend(self._inside(found))

    def judged(self) -> frozenset[str]:
        """Return the tables that may be read, after the visit. Scoping of names is left to the analysed check."""
        unknown = sorted(self._read - self._tables - self._named)
        if unknown:
            known = ", ".join(sorted(self._tables)) or "none yet"
            raise NotAllowed(f"there is no table {unknown[0]}", hint=f"tables: {known}")
        return frozenset(self._read & self._tables)

    def _inside(self, node: Any) -> Iterator[Any]:
        """Yield the parts of a node, which must be on the allow list."""
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
            raise NotAllowed(f"{shown} is not one of the tables", hint="table names have no dot")
        if node.isStreaming() or not node.options().isEmpty():
            raise NotAllowed(f"{shown} must be read without STREAM and options", hint="")
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
    """Return a readable name of a Spark class: `ShowTables` is SHOW TABLES."""
    last = name.rsplit(".", 1)[-1].rstrip("$").removeprefix("Unresolved").removesuffix("Command")
    words = "".join(f" {letter}" if letter.isupper() else letter for letter in last.split("$")[0])
    return words.strip().upper()
