"""Allow lists of `pipeline.guard`: the Spark classes and functions that untrusted queries may use."""

from __future__ import annotations

from typing import Final

CONSTANTS: Final = "expressions.GenericInternalRow"
CATALYST: Final = "org.apache.spark.sql.catalyst."
COLLECTIONS: Final = ("scala.collection.",)
TUPLES: Final = ("scala.Tuple", "scala.Some")
LEAVES: Final = (
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

NODES: Final = frozenset(
    [f"plans.logical.{name}" for name in _PLANS.split()]
    + [f"analysis.{name}" for name in _ANALYSIS.split()]
    + [f"expressions.{name}" for name in _EXPRESSIONS.split()]
    + _OTHERS.split()
)

# At most one relation, no correlated subquery, nothing that multiplies rows or columns: no joins, WITH, CUBE, PIVOT,
# generators. Nothing that takes long for one row, either: Java cannot interrupt such a thread.
_LIGHT_PLANS: Final = """
Aggregate Distinct Filter GlobalLimit LocalLimit LocalRelation Offset OneRowRelation Project Sort SubqueryAlias
"""

_LIGHT_ANALYSIS: Final = """
UnresolvedAlias UnresolvedAttribute UnresolvedFunction UnresolvedHaving UnresolvedInlineTable UnresolvedOrdinal
UnresolvedRelation UnresolvedStar
"""

_LIGHT_EXPRESSIONS: Final = """
Add Alias And Ascending$ Between CaseWhen Cast Coalesce Descending$ Divide EqualNullSafe EqualTo ExprId
GenericInternalRow GreaterThan GreaterThanOrEqual In IntegralDivide IsNotNull IsNull LessThan LessThanOrEqual Literal
Multiply Not NullsFirst$ NullsLast$ NumericEvalContext Or Remainder SortOrder Subtract UnaryMinus UnaryPositive
"""

LIGHT_NODES: Final = frozenset(
    [f"plans.logical.{name}" for name in _LIGHT_PLANS.split()]
    + [f"analysis.{name}" for name in _LIGHT_ANALYSIS.split()]
    + [f"expressions.{name}" for name in _LIGHT_EXPRESSIONS.split()]
    + ["AliasIdentifier", "FunctionIdentifier"]
)

# Names in the analysed plan.
VIEW: Final = "plans.logical.View"

SELECTS: Final = frozenset(("plans.logical.Aggregate", "plans.logical.Project"))

# Nodes without children: the query's own rows and values, and the current time.
_LEAF_PLANS: Final = "CTERelationRef LocalRelation OneRowRelation Range UnionLoopRef"

_LEAF_EXPRESSIONS: Final = """
AttributeReference Coalesce CommonExpressionRef Concat CreateArray CreateMap CreateNamedStruct CumeDist CurrentDate
CurrentRow$ CurrentTime CurrentTimeZone CurrentTimestamp DenseRank EulerNumber Exists LateralSubquery ListQuery
Literal LocalTimestamp NamedLambdaVariable Now OuterReference PercentRank Pi Rank RowNumber ScalarSubquery
UnboundedFollowing$ UnboundedPreceding$ UnspecifiedFrame$
"""

LEAF_NODES: Final = frozenset(
    [f"plans.logical.{name}" for name in _LEAF_PLANS.split()]
    + [f"expressions.{name}" for name in _LEAF_EXPRESSIONS.split()]
)

# The output of a function must never be much longer than its input.
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

_LIGHT_FUNCTIONS: Final = """
abs any_value approx_count_distinct avg between bigint bool_and bool_or boolean ceil coalesce count count_if
current_date current_timestamp date date_trunc datediff day double every float floor greatest hour if ifnull int
isnotnull isnull least length lower max max_by mean min min_by minute mod month now nullif nvl round second sign sqrt
stddev string sum timestamp trunc try_divide unix_seconds upper variance weekday year
"""

LIGHT_FUNCTIONS: Final = frozenset(_LIGHT_FUNCTIONS.split())

TABLE_FUNCTIONS: Final = frozenset(
    ("range", "explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer")
)
