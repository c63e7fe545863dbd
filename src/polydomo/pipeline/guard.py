"""What strangers may ask in SQL: one query over the tables, and nothing else.

Spark's own parser reads the text, so that what is judged is what is run. Everything in the plan that it makes must be
known here: operators, expressions, functions, relations. It is a list of what is allowed, not of what is forbidden:
what a later Spark can do besides is refused until somebody has looked at it.

Not on the list, among others: commands of every kind; relations that are files (``parquet.`/etc/…` ``); functions that
call Java, run programs or read files; those that tell of the machine (`input_file_name`, `current_user`); those that
make much out of little (`repeat`, `sequence`); hints; variables (`${env:HOME}` would be replaced by Spark's parser).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from polydomo.errors import PolydomoError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Characters. A longer text is not a question but an attempt to keep the parser busy.
LONGEST: Final = 64 * 1024

# Nodes of a plan and what hangs on them. Every further one costs a third of a millisecond or so.
MOST_NODES: Final = 20_000


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
    tables: frozenset[str]  # those it reads


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
    return Checked(sql, visitor.judged())


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
        """The tables that are read, once everything has been seen."""
        unknown = sorted(self._read - self._tables - self._named)
        if unknown:
            known = ", ".join(sorted(self._tables)) or "none yet"
            raise NotAllowed(f"there is no table {unknown[0]}", hint=f"there are {known}")
        return frozenset(self._read & self._tables)

    def _inside(self, node: Any) -> Iterator[Any]:
        """What hangs on a node, which must be one that is known."""
        name = node.getClass().getName()
        if name.startswith(_CATALYST):
            name = name.removeprefix(_CATALYST)
            if name not in _NODES:
                raise NotAllowed(f"{_spoken(name)} is not allowed in a query")
            self._look_at(name, node)
            if name != _CONSTANTS:
                yield from _fields(node)
        elif name.startswith(_COLLECTIONS):
            found = node.iterator()
            while found.hasNext():
                yield found.next()
        elif name.startswith(_TUPLES):
            yield from _fields(node)
        elif not name.startswith(_LEAVES):
            raise NotAllowed(f"{_spoken(name)} is not allowed in a query")

    def _look_at(self, name: str, node: Any) -> None:
        if name == "analysis.UnresolvedRelation":
            self._relation(node)
        elif name in ("analysis.UnresolvedFunction", "analysis.UnresolvedGenerator"):
            of = node.nameParts() if name.endswith("Function") else node.name().nameParts()
            _allowed(_strings(of), FUNCTIONS, "function")
        elif name == "analysis.UnresolvedTableValuedFunction":
            _allowed(_strings(node.name()), TABLE_FUNCTIONS, "table function")
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


def _allowed(parts: list[str], names: frozenset[str], what: str) -> None:
    if len(parts) != 1 or parts[0].lower() not in names:
        raise NotAllowed(f"the {what} {'.'.join(parts)} is not allowed in a query")


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


_CONSTANTS: Final = "expressions.GenericInternalRow"
_CATALYST: Final = "org.apache.spark.sql.catalyst."
_COLLECTIONS: Final = ("scala.collection.",)
_TUPLES: Final = ("scala.Tuple", "scala.Some")
_LEAVES: Final = (
    "scala.None$",
    "scala.Enumeration$",
    "java.util.UUID",
    "java.math.",
    "java.lang.",
    "org.apache.spark.sql.types.",
    "org.apache.spark.unsafe.types.",
    "org.apache.spark.sql.util.CaseInsensitiveStringMap",
)

_PLANS: Final = """
Aggregate Deduplicate Distinct Except Filter Generate GlobalLimit Intersect Join LateralJoin LocalLimit LocalRelation
Offset OneRowRelation Pivot Project RepartitionByExpression Sample Sort SubqueryAlias Tail Union Unpivot UnresolvedWith
Window WithWindowDefinition JoinHint SampleMethod$Bernoulli$ SampleMethod$System$ UnresolvedPivot
"""

_ANALYSIS: Final = """
MultiAlias UnresolvedAlias UnresolvedAttribute UnresolvedDeserializer UnresolvedExtractValue UnresolvedFunction
UnresolvedGenerator UnresolvedHaving UnresolvedInlineTable UnresolvedOrdinal UnresolvedRelation UnresolvedStar
UnresolvedStarExceptOrReplace UnresolvedSubqueryColumnAliases UnresolvedTVFAliases UnresolvedTableValuedFunction
"""

_EXPRESSIONS: Final = """
Add Alias And AttributeReference BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CaseWhen Cast Coalesce Collate Concat
CreateNamedStruct Cube CurrentRow$ Divide EqualNullSafe EqualTo Exists GreaterThan GreaterThanOrEqual GroupingSets ILike
In InSubquery IntegralDivide IsNotNull IsNotUnknown IsNull IsUnknown LambdaFunction LateralSubquery LessThan
LessThanOrEqual Like LikeAll LikeAny ListQuery Literal Multiply NamedArgumentExpression Not NotLikeAll NotLikeAny Or
Overlay PipeExpression PipeOperator RLike Remainder Rollup ScalarSubquery SemiStructuredExtract SortOrder
SpecifiedWindowFrame StringLocate StringTrim StringTrimLeft StringTrimRight StringTrimBoth Substring Subtract
TimestampAdd TimestampDiff UnaryMinus UnaryPositive UnboundedFollowing$ UnboundedPreceding$ UnresolvedCollation
UnresolvedNamedLambdaVariable UnresolvedWindowExpression UnspecifiedFrame$ WindowExpression WindowSpecDefinition
WindowSpecReference Ascending$ Descending$ NullsFirst$ NullsLast$ RangeFrame$ RowFrame$ ExprId NumericEvalContext
GenericInternalRow aggregate.AggregateExpression aggregate.AnyValue aggregate.Complete$ aggregate.First aggregate.Last
"""

_OTHERS: Final = """
AliasIdentifier FunctionIdentifier plans.Cross$ plans.FullOuter$ plans.Inner$ plans.LeftAnti$ plans.LeftOuter$
plans.LeftSemi$ plans.NaturalJoin plans.RightOuter$ plans.UsingJoin
"""

_NODES: Final = frozenset(
    [f"plans.logical.{name}" for name in _PLANS.split()]
    + [f"analysis.{name}" for name in _ANALYSIS.split()]
    + [f"expressions.{name}" for name in _EXPRESSIONS.split()]
    + _OTHERS.split()
)

# What a function gives back is never much longer than what it was given.
_FUNCTIONS: Final = """
abs acos acosh add_months aggregate any any_value approx_count_distinct approx_percentile array array_agg array_append
array_compact array_contains array_distinct array_except array_intersect array_join array_max array_min array_position
array_prepend array_remove array_size array_sort array_union arrays_overlap arrays_zip ascii asin asinh atan atan2
atanh avg base64 between bigint bin binary bit_and bit_count bit_length bit_or bit_xor bool_and bool_or boolean bround
btrim cardinality case cast cbrt ceil ceiling char char_length character_length chr coalesce collect_list collect_set
concat concat_ws contains conv corr cos cosh cot count count_if covar_pop covar_samp crc32 csc cume_dist curdate
current_date current_timestamp current_timezone date date_add date_diff date_format date_from_unix_date date_part
date_sub date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear decimal decode degrees
dense_rank div double e element_at elt encode endswith equal_null every exists exp explode explode_outer expm1 extract
filter find_in_set first first_value flatten float floor forall from_unixtime from_utc_timestamp get get_json_object
greatest grouping grouping_id hash hex hour hypot if ifnull ilike in initcap inline inline_outer instr int
is_variant_null isnan isnotnull isnull json_array_length json_object_keys kll_merge_agg_bigint kll_merge_agg_double
kll_merge_agg_float kll_sketch_get_n_bigint kll_sketch_get_n_double kll_sketch_get_n_float
kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double kll_sketch_get_quantile_float kll_sketch_get_rank_bigint
kll_sketch_get_rank_double kll_sketch_get_rank_float kurtosis lag last last_day last_value lcase lead least left len
length levenshtein like listagg ln localtimestamp locate log log10 log1p log2 lower ltrim make_date make_dt_interval
make_interval make_timestamp make_ym_interval map map_concat map_contains_key map_entries map_filter map_from_arrays
map_from_entries map_keys map_values map_zip_with max max_by md5 mean median min min_by minute mod mode month
monthname months_between named_struct nanvl negative next_day not now nth_value ntile nullif nullifzero nvl nvl2
octet_length or overlay parse_url percent_rank percentile percentile_approx percentile_cont percentile_disc pi pmod
posexplode posexplode_outer position positive pow power quarter radians rand randn random rank reduce regexp
regexp_count regexp_extract regexp_instr regexp_like regexp_substr regr_avgx regr_avgy regr_count regr_intercept
regr_r2 regr_slope regr_sxx regr_sxy regr_syy replace reverse right rint rlike round row_number rtrim sec second sha
sha1 sha2 shuffle sign signum sin sinh size skewness slice smallint some sort_array soundex split split_part sqrt
startswith std stddev stddev_pop stddev_samp string string_agg struct substr substring substring_index sum tan tanh
timestamp timestamp_micros timestamp_millis timestamp_seconds tinyint to_char to_date to_number to_timestamp
to_unix_timestamp to_utc_timestamp to_varchar transform transform_keys transform_values translate trim trunc try_add
try_avg try_divide try_element_at try_mod try_multiply try_subtract try_sum try_to_date try_to_number try_to_timestamp
typeof ucase unbase64 unhex unix_date unix_micros unix_millis unix_seconds unix_timestamp upper url_decode url_encode
var_pop var_samp variance weekday weekofyear when width_bucket window window_time xxhash64 year zeroifnull zip_with
"""

FUNCTIONS: Final = frozenset(_FUNCTIONS.split())

TABLE_FUNCTIONS: Final = frozenset(
    ("range", "explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer")
)
