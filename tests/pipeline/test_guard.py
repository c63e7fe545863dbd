"""Tests of the guard: one query over the tables is allowed; everything else that Spark's SQL can do is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from polydomo.pipeline import guard, guard_lists

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TABLES = ("jobs", "attempts", "service_minute")

ALLOWED = {
    "SELECT 1": set(),
    "SELECT 1;": set(),
    "select * from JOBS -- comment": {"jobs"},
    "TABLE jobs": {"jobs"},
    "VALUES (1, 'a'), (2, 'b')": set(),
    "SELECT service, count(*) n FROM jobs WHERE outcome = 'done' AND run_s BETWEEN 1 AND 2 GROUP BY 1 "
    "HAVING n > 2 ORDER BY n DESC NULLS LAST LIMIT 3 OFFSET 1": {"jobs"},
    "WITH a AS (SELECT * FROM jobs), b(x) AS (SELECT service FROM a) SELECT * FROM b, attempts": {
        "jobs",
        "attempts",
    },
    "WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r": set(),
    "SELECT * FROM jobs j LEFT SEMI JOIN attempts a ON j.job_id = a.job_id CROSS JOIN service_minute": set(
        TABLES
    ),
    "SELECT (SELECT max(at) FROM service_minute), EXISTS (SELECT 1 FROM attempts) FROM jobs "
    "WHERE job_id NOT IN (SELECT job_id FROM attempts)": set(TABLES),
    "SELECT row_number() OVER w, lag(run_s, 1) OVER (PARTITION BY a ORDER BY b ROWS BETWEEN 1 PRECEDING AND "
    "CURRENT ROW) FROM jobs WINDOW w AS (PARTITION BY service ORDER BY finished)": {"jobs"},
    "SELECT CASE WHEN a THEN 1 END, CAST(a AS int), a::date, -a, a || b, a[0].c, a <=> b, a RLIKE 'x', "
    "a LIKE ANY ('x', 'y'), date '2026-01-01', interval 1 day, extract(hour FROM t), trim(BOTH 'x' FROM y), "
    "transform(l, x -> x + 1), current_timestamp, timestampdiff(hour, a, b) FROM jobs": {"jobs"},
    "SELECT service, sum(x) FILTER (WHERE y), percentile_cont(0.5) WITHIN GROUP (ORDER BY run_s) FROM jobs "
    "GROUP BY ROLLUP (service)": {"jobs"},
    "SELECT * EXCEPT (a) FROM jobs TABLESAMPLE (10 PERCENT) LATERAL VIEW explode(l) t AS b": {"jobs"},
    "SELECT * FROM jobs PIVOT (sum(a) FOR b IN (1, 2)) UNION ALL SELECT * FROM attempts": {
        "jobs",
        "attempts",
    },
    "SELECT * FROM range(10), LATERAL (SELECT 1)": set(),
    "FROM jobs |> WHERE a > 1 |> AGGREGATE sum(x) GROUP BY y |> LIMIT 1": {"jobs"},
    "SELECT * FROM identifier('jobs')": {"jobs"},
    "SELECT kll_sketch_get_quantile_double(wait, 0.95) FROM service_minute": {"service_minute"},
}

FILES = [
    "SELECT * FROM parquet.`/etc/passwd`",
    "SELECT * FROM text.`/etc/passwd`",
    "SELECT * FROM csv.`/etc/passwd`",
    "SELECT * FROM binaryFile.`/etc/passwd`",
    "SELECT * FROM `text`.`file:///etc/passwd`",
    "SELECT * FROM TEXT . `/etc/passwd`",
    "SELECT * FROM delta.`/data`",
    "SELECT * FROM polydomo.`mdp://127.0.0.1:5555`",
    "SELECT * FROM `/etc/passwd`",
    "SELECT * FROM jobs JOIN text.`/etc/passwd` ON true",
    "SELECT (SELECT first(value) FROM text.`/etc/passwd`)",
    "SELECT * FROM jobs WHERE a IN (SELECT value FROM text.`/etc/passwd`)",
    "SELECT * FROM jobs WHERE EXISTS (SELECT * FROM text.`/etc/passwd`)",
    "WITH a AS (SELECT * FROM text.`/etc/passwd`) SELECT * FROM a",
    "WITH a AS (WITH b AS (SELECT * FROM text.`/etc/passwd`) SELECT * FROM b) SELECT * FROM a",
    "SELECT * FROM jobs, LATERAL (SELECT * FROM text.`/etc/passwd`)",
    "SELECT * FROM jobs UNION ALL SELECT * FROM text.`/etc/passwd`",
    "SELECT * FROM (SELECT * FROM (SELECT * FROM text.`/etc/passwd`))",
    "SELECT sum(a) OVER (PARTITION BY (SELECT first(value) FROM text.`/etc/passwd`)) FROM jobs",
    "SELECT * FROM jobs ORDER BY (SELECT first(value) FROM text.`/etc/passwd`)",
    "SELECT * FROM jobs LIMIT (SELECT count(*) FROM text.`/etc/passwd`)",
    "SELECT transform(l, x -> (SELECT first(value) FROM text.`/etc/passwd`)) FROM jobs",
    "VALUES ((SELECT first(value) FROM text.`/etc/passwd`))",
    "FROM jobs |> UNION ALL (SELECT * FROM text.`/etc/passwd`)",
    "TABLE text.`/etc/passwd`",
    "SELECT * FROM identifier('text.`/etc/passwd`')",
    "SELECT * FROM identifier('te' || 'xt.`/etc/passwd`')",
    "SELECT _metadata.file_path FROM jobs",
    "SELECT jobs._metadata FROM jobs",
]

RELATIONS = [
    "SELECT * FROM nowhere",
    "SELECT * FROM default.jobs",
    "SELECT * FROM spark_catalog.default.jobs",
    "SELECT * FROM global_temp.jobs",
    "SELECT * FROM system.information_schema.tables",
    "SELECT * FROM jobs VERSION AS OF 3",
    "SELECT * FROM jobs TIMESTAMP AS OF '2026-01-01'",
    "SELECT * FROM STREAM jobs",
    "SELECT * FROM jobs WITH ('path' = '/etc')",
    "SELECT * FROM read_files('/etc/passwd')",
    "SELECT * FROM python_worker_logs()",
    "SELECT * FROM sql_keywords()",
    "SELECT * FROM collations()",
    "SELECT * FROM variant_explode(parse_json('{}'))",
    "SELECT * FROM system.builtin.range(3)",
    "SELECT identifier('service') FROM jobs",
]

FUNCTIONS = [
    "SELECT reflect('java.lang.System', 'getenv', 'HOME')",
    "SELECT java_method('java.lang.Runtime', 'getRuntime')",
    "SELECT try_reflect('java.lang.System', 'exit', 1)",
    "SELECT ReFlEcT('java.lang.System', 'exit', 1)",
    "SELECT `reflect`('java.lang.System', 'exit', 1)",
    "SELECT system.builtin.reflect('java.lang.System', 'exit', 1)",
    "SELECT builtin.reflect('java.lang.System', 'exit', 1)",
    "SELECT identifier('reflect')('java.lang.System', 'exit', 1)",
    "SELECT identifier('ref' || 'lect')('java.lang.System', 'exit', 1)",
    "SELECT a FROM jobs WINDOW w AS (PARTITION BY reflect('java.lang.System', 'exit', 1))",
    "SELECT * FROM VALUES (reflect('java.lang.System', 'exit', 1))",
    "SELECT * FROM jobs LATERAL VIEW explode(reflect('java.lang.System', 'exit', 1)) t",
    "SELECT * FROM jobs LATERAL VIEW json_tuple(a, 'b') t",
    "SELECT * FROM range(reflect('java.lang.System', 'exit', 1))",
    "SELECT transform(l, x -> reflect('java.lang.System', 'exit', 1)) FROM jobs",
    "SELECT CASE WHEN true THEN reflect('java.lang.System', 'exit', 1) END",
    "SELECT sum(reflect('java.lang.System', 'exit', 1)) FILTER (WHERE true) OVER () FROM jobs",
    "SELECT * FROM jobs PIVOT (max(reflect('java.lang.System', 'exit', 1)) FOR b IN (1))",
    "SELECT * FROM jobs GROUP BY ROLLUP (reflect('java.lang.System', 'exit', 1))",
    "SELECT * FROM jobs JOIN attempts ON reflect('java.lang.System', 'exit', 1) = 1",
    "FROM jobs |> EXTEND reflect('java.lang.System', 'exit', 1) AS x",
    "SELECT input_file_name() FROM jobs",
    "SELECT input_file_block_start() FROM jobs",
    "SELECT current_user(), session_user(), user()",
    "SELECT current_catalog(), current_database(), current_schema()",
    "SELECT version()",
    "SELECT uuid(), monotonically_increasing_id(), spark_partition_id()",
    "SELECT from_avro(a, 'x'), from_protobuf(a, 'x', '/etc/passwd')",
    "SELECT xpath('<a/>', 'a'), from_xml('<a/>', 'a int')",
    "SELECT aes_encrypt('a', 'b')",
    "SELECT raise_error('x'), assert_true(false)",
    "SELECT repeat('x', 2000000000)",
    "SELECT space(2000000000), lpad('x', 2000000000), rpad('x', 2000000000)",
    "SELECT sequence(1, 2000000000), array_repeat(1, 2000000000)",
    "SELECT format_string('%2000000000d', 1), printf('%2000000000d', 1)",
    "SELECT my_udf(1)",
    "SELECT default.my_udf(1)",
]

STATEMENTS = [
    "INSERT INTO jobs VALUES (1)",
    "INSERT OVERWRITE DIRECTORY '/tmp/x' USING csv SELECT * FROM jobs",
    "FROM jobs INSERT INTO attempts SELECT *",
    "UPDATE jobs SET a = 1",
    "DELETE FROM jobs",
    "MERGE INTO jobs USING attempts ON true WHEN MATCHED THEN DELETE",
    "TRUNCATE TABLE jobs",
    "CREATE TABLE x AS SELECT 1",
    "CREATE TABLE x USING csv LOCATION '/etc'",
    "CREATE OR REPLACE TEMP VIEW jobs AS SELECT 1",
    "CREATE TEMPORARY VIEW x USING text OPTIONS (path '/etc/passwd')",
    "CREATE FUNCTION f AS 'a.B' USING JAR '/x.jar'",
    "CREATE TEMPORARY FUNCTION f() RETURNS int RETURN 1",
    "DROP TABLE jobs",
    "DROP VIEW jobs",
    "ALTER TABLE jobs ADD COLUMN a int",
    "CREATE DATABASE x LOCATION '/x'",
    "USE x",
    "SET spark.sql.shuffle.partitions = 1",
    "SET -v",
    "SET VARIABLE x = 1",
    "DECLARE x INT DEFAULT 1",
    "RESET",
    "ADD JAR '/x.jar'",
    "ADD FILE '/etc/passwd'",
    "LIST FILES",
    "CACHE TABLE x AS SELECT 1",
    "CACHE TABLE jobs",
    "UNCACHE TABLE jobs",
    "CLEAR CACHE",
    "REFRESH '/x'",
    "REFRESH TABLE jobs",
    "ANALYZE TABLE jobs COMPUTE STATISTICS",
    "LOAD DATA INPATH '/etc/passwd' INTO TABLE jobs",
    "EXPLAIN SELECT 1",
    "EXPLAIN EXTENDED SELECT * FROM jobs",
    "DESCRIBE jobs",
    "DESCRIBE FUNCTION reflect",
    "SHOW TABLES",
    "SHOW CREATE TABLE jobs",
    "EXECUTE IMMEDIATE 'SELECT 1'",
    "BEGIN SELECT 1; END",
    "BEGIN DROP TABLE jobs; END",
    "CALL system.f()",
    "SELECT TRANSFORM (a) USING 'cat' AS (b) FROM jobs",
    "FROM jobs MAP a USING 'cat' AS b",
    "SELECT /*+ REPARTITION(100000) */ * FROM jobs",
    "SELECT /*+ BROADCAST(jobs) */ * FROM jobs",
    "SELECT '${env:HOME}'",
    "SELECT '${spark.master}'",
    "SELECT :parameter",
    "SELECT ?",
    "SELECT 1 -- " + "x" * guard.LONGEST,
]

ATTACKS = {"files": FILES, "relations": RELATIONS, "functions": FUNCTIONS, "statements": STATEMENTS}

NOT_SQL = ["", " \n", "SELECT", "hello", "SELECT 1; SELECT 2", "SELECT 1; DROP TABLE jobs", "{}", "SELECT 'a"]


def test_queries_over_the_tables_pass(spark: SparkSession) -> None:
    for sql, tables in ALLOWED.items():
        assert guard.check(spark, sql, TABLES).tables == tables, sql


@pytest.mark.parametrize("kind", list(ATTACKS))
def test_everything_else_is_refused(spark: SparkSession, kind: str) -> None:
    passed = [sql for sql in ATTACKS[kind] if not _is_refused(spark, sql)]
    assert passed == []


def test_what_is_not_sql_is_said_to_be_none(spark: SparkSession) -> None:
    for sql in NOT_SQL:
        with pytest.raises(guard.BadQuery):
            guard.check(spark, sql, TABLES)


def test_a_refusal_says_what_is_wrong(spark: SparkSession) -> None:
    for sql, said in {
        "DROP TABLE jobs": "DROP TABLE is not allowed",
        "SHOW TABLES": "SHOW TABLES is not allowed",
        "SELECT reflect('a')": "the function reflect is not allowed",
        "SELECT * FROM text.`/etc/passwd`": "text./etc/passwd is not one of the tables",
        "SELECT * FROM job": "there is no table job (tables: attempts, jobs, service_minute)",
    }.items():
        with pytest.raises(guard.NotAllowed) as error:
            guard.check(spark, sql, TABLES)
        assert said in str(error.value)


def test_every_function_on_the_list_is_one_of_sparks(spark: SparkSession) -> None:
    """An allowed name that Spark does not know could later be a user's function."""
    known = {row.function for row in spark.sql("SHOW FUNCTIONS").collect()}
    assert guard_lists.FUNCTIONS - known == set()
    assert guard_lists.TABLE_FUNCTIONS - known - {"range"} == set()


MEANINGS = [
    "SELECT user",
    "SELECT current_user, session_user",
    "SELECT upper(user)",
    "SELECT 1 FROM jobs WHERE service = user",
    "SELECT (SELECT user)",
    "WITH a AS (SELECT user AS x) SELECT * FROM a",
    "SELECT sum(n) OVER (PARTITION BY session_user) FROM jobs",
    "SELECT transform(array(1), x -> user)",
    "SELECT 1 FROM jobs WHERE EXISTS (SELECT 1 FROM range(3) WHERE jobs.service = user)",
    "SELECT * FROM jobs, LATERAL (SELECT user)",
    "FROM jobs |> EXTEND user AS x",
    # A WITH does not allow a table of the same name outside of its scope.
    "SELECT * FROM (WITH secret AS (SELECT 1) SELECT * FROM secret), secret",
    "SELECT *, (WITH secret AS (SELECT 1 AS x) SELECT x FROM secret) FROM secret",
    "WITH a AS (WITH secret AS (SELECT 1) SELECT * FROM secret) SELECT * FROM a, secret",
    "SELECT * FROM (WITH secret_view AS (SELECT 1) SELECT * FROM secret_view), secret_view",
]


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """Yield a session with one of our views, and a table and a view that are not ours."""
    made = spark.newSession()
    made.createDataFrame([("a", 1)], "service string, n int").createOrReplaceTempView("jobs")
    made.sql(f"CREATE TABLE secret USING parquet LOCATION '{tmp_path}/secret' AS SELECT 'hidden' AS x")
    made.sql("CREATE VIEW secret_view AS SELECT 'hidden' AS x")
    yield made
    made.sql("DROP VIEW secret_view")
    made.sql("DROP TABLE secret")


def test_names_are_judged_by_what_spark_makes_of_them(session: SparkSession) -> None:
    for sql in MEANINGS:
        checked = guard.check(session, sql, ["jobs"])  # allowed by its text
        with pytest.raises(guard.NotAllowed):
            guard.check_analysed(session.sql(checked.sql), checked.tables)
    for sql in (
        "WITH secret AS (SELECT n FROM jobs) SELECT * FROM secret",
        "WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
        "WITH jobs AS (SELECT 1 AS n) SELECT n FROM jobs",
        "SELECT row_number() OVER (ORDER BY n), rank() OVER (ORDER BY n), now(), pi(), rand() FROM jobs",
        "SELECT * FROM jobs j WHERE n IN (SELECT id FROM range(3)) AND EXISTS (SELECT 1 WHERE j.n > 0)",
        "SELECT * FROM jobs, LATERAL explode(array(1, 2)) AS t(x), VALUES (1), (2)",
    ):
        checked = guard.check(session, sql, ["jobs"])
        guard.check_analysed(session.sql(checked.sql), checked.tables)


LIGHT = {
    "SELECT 1": True,
    "SELECT count(*) FROM jobs": True,
    "SELECT service, sum(n) AS n FROM jobs WHERE n BETWEEN 1 AND 9 GROUP BY 1 HAVING n > 2 ORDER BY 2 DESC LIMIT 3": (
        True
    ),
    "SELECT avg(n) FROM (SELECT DISTINCT n FROM jobs WHERE service IN ('a', 'b'))": True,
    "SELECT 'a' RLIKE '(.*a){20}$'": False,
    "SELECT service LIKE '%a%' FROM jobs": False,
    "SELECT aggregate(array(1), 'a', (a, x) -> concat(a, a))": False,
    "SELECT collect_list(n) FROM jobs": False,
    "SELECT * FROM range(10)": False,
    "SELECT count(*) FROM jobs, jobs AS b": False,
    "WITH a AS (SELECT 1) SELECT * FROM a": False,
    "SELECT count(*) FROM jobs GROUP BY CUBE (service, n)": False,
    f"SELECT 1 {'+ 1 ' * 600}": False,
    # Each of these doubles the plan below it.
    f"{'SELECT *, * FROM (' * 5}SELECT 1{')' * 5}": False,
    "SELECT 1 AS a, a + a AS b, b + b AS c, c + c AS d, d + d AS e": False,
}


def test_queries_that_cost_little_are_known(session: SparkSession) -> None:
    for sql, light in LIGHT.items():
        checked = guard.check(session, sql, ["jobs"])
        small = guard.check_analysed(session.sql(sql), checked.tables)
        assert (checked.light and small) is light, sql


def _is_refused(spark: SparkSession, sql: str) -> bool:
    try:
        guard.check(spark, sql, TABLES)
    except guard.NotAllowed:
        return True
    except guard.BadQuery:  # it does not parse, so it is not an attack to be listed here
        return False
    return False
