"""Hostile queries for the SQL service: those it must refuse, and those it must survive."""

from __future__ import annotations

from tests.pipeline.test_guard import ATTACKS, MEANINGS

ITEMS = ", ".join(map(str, range(1, 65)))
TEXT = "a" * 60 + "b"


def _nested(begin: str, middle: str, end: str, times: int) -> str:
    return begin * times + middle + end * times


# Queries that need more memory than there is.
MEMORY = [
    f"SELECT aggregate(array({ITEMS}), 'aaaa', (a, x) -> concat(a, a))",
    f"SELECT length(reduce(array({ITEMS}), 'aaaa', (a, x) -> a || a))",
    f"SELECT aggregate(array({ITEMS}), array(1), (a, x) -> flatten(array(a, a)))",
    f"SELECT size(aggregate(array({ITEMS}), array(id), (a, x) -> flatten(array(a, a)))) FROM range(4)",
    f"SELECT aggregate(array({ITEMS}), CAST(id AS string), (a, x) -> replace(a || '0', '0', '0000')) FROM range(4)",
    f"SELECT transform(array({ITEMS}), y -> aggregate(array({ITEMS}), 'ab', (a, x) -> concat(a, a)))",
    f"SELECT {_nested('replace(', repr('a' * 10), ', ' + repr('a') + ', ' + repr('a' * 10) + ')', 12)}",
    f"SELECT {_nested('hex(', repr('abcd'), ')', 40)}",
    f"SELECT {_nested('base64(', repr('abcd'), ')', 120)}",
    f"SELECT {_nested('url_encode(', repr('%%%%'), ')', 60)}",
    "SELECT size(collect_list(id)) FROM range(100000000000)",
    "SELECT size(collect_set(id)) FROM range(100000000000)",
    "SELECT array_agg(struct(id, id, id)) FROM range(100000000000)",
    "SELECT length(listagg(id, ', ')) FROM range(100000000000)",
    "SELECT length(string_agg(sha2(CAST(id AS string), 512))) FROM range(100000000000)",
    "SELECT percentile(id, 0.5) FROM range(100000000000)",
    "SELECT median(id), mode(id) FROM range(100000000000)",
    "SELECT map_from_entries(collect_list(struct(id, id))) FROM range(100000000000)",
    "SELECT max(size(l)) FROM (SELECT collect_list(id) OVER () AS l FROM range(10000000000))",
    "SELECT id, l FROM (SELECT collect_list(id) AS l FROM range(10000000)), range(1000000)",
]

_EVIL = ("(.*a){20}$", "(a|aa)+$", "(a|a)*c", "((a*)*)*c", "(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)c")

# Queries that block a thread without a chance to interrupt it.
REGEX = [
    *[f"SELECT '{TEXT}' RLIKE '{evil}'" for evil in _EVIL],
    *[f"SELECT count(*) FROM range(1000) WHERE concat('{TEXT}', id) RLIKE '{evil}'" for evil in _EVIL],
    f"SELECT regexp_like('{TEXT}', '{_EVIL[0]}')",
    f"SELECT regexp_count(concat('{TEXT}', id), '{_EVIL[1]}') FROM range(8)",
    f"SELECT regexp_extract('{TEXT}', '{_EVIL[2]}', 0)",
    f"SELECT regexp_instr(concat('{TEXT}', id), '{_EVIL[2]}') FROM range(8)",
    f"SELECT regexp_substr('{TEXT}', '{_EVIL[1]}')",
    f"SELECT split(concat('{TEXT}', id), '{_EVIL[0]}') FROM range(8)",
    f"SELECT '{'a' * 4000}b' LIKE '{'%a' * 12}'",
    f"SELECT '{'a' * 4000}b' ILIKE '{'%A' * 12}'",
]

_ALIASES = ", ".join(f"a{n} + a{n} AS a{n + 1}" for n in range(40))
_DOUBLED = ", ".join(f"c{n + 1} AS (SELECT a.x FROM c{n} a, c{n} b)" for n in range(30))

# Queries that are long or deep, or become so during analysis and optimisation.
BOMBS = [
    f"SELECT {_nested('(', '1', ')', 5000)}",
    f"SELECT {_nested('(', '1', ')', 30000)}",
    f"SELECT * FROM {_nested('(SELECT * FROM ', 'range(1)', ')', 2000)}",
    f"SELECT {_nested('(SELECT ', '1', ')', 3000)}",
    f"SELECT {'NOT ' * 15000}true",
    f"SELECT {'- ' * 30000}1",
    f"SELECT {_nested('CASE WHEN true THEN ', '1', ' END', 2000)}",
    f"SELECT {_nested('array(', '1', ')', 5000)}",
    f"SELECT CAST(null AS {_nested('array<', 'int', '>', 5000)})",
    f"SELECT {_nested('abs(', '1', ')', 10000)}",
    f"SELECT count(*) FROM range(10) WHERE {' OR '.join(f'id={n}' for n in range(6000))}",
    f"SELECT count(*) FROM range(10) WHERE {' OR '.join(f'id={n}' for n in range(10_000))}",
    f"SELECT count(*) FROM range(10) WHERE id IN ({', '.join(map(str, range(9000)))})",
    f"SELECT {'+'.join(['id'] * 20000)} FROM range(10)",
    " UNION ALL ".join(["SELECT 1"] * 3000),
    f"SELECT {', '.join(['*'] * 20000)} FROM range(3)",
    f"{_nested('SELECT *, *, *, * FROM (', 'SELECT 1', ')', 16)}",
    f"SELECT 1 AS a0, {_ALIASES}",
    f"SELECT * FROM (SELECT id AS a0, {_ALIASES} FROM range(3)) WHERE a40 > 0",
    f"WITH c0 AS (SELECT 1 AS x), {_DOUBLED} SELECT * FROM c30",
    f"SELECT count(*) FROM range(3) GROUP BY CUBE ({', '.join(f'id + {n}' for n in range(24))})",
    f"SELECT * FROM range(9) PIVOT (count(*) FOR id IN ({', '.join(map(str, range(5000)))}))",
    f"SELECT {_nested('transform(array(1, 2), x -> ', '1', ')', 300)}",
    "SELECT '" + "x" * 60000 + "'",
    "SELECT " + "/*" * 10000,
]

# Queries that never end, or nearly so.
ENDLESS = [
    "SELECT sum(id % 7) FROM range(1000000000000)",
    "SELECT count(*) FROM range(1000000), range(1000000), range(1000000)",
    "SELECT max(a.id * b.id % 13) FROM range(10000000) a CROSS JOIN range(10000000) b",
    "SELECT id FROM range(100000000000) ORDER BY hash(id) DESC",
    "SELECT DISTINCT hash(id), id FROM range(100000000000) ORDER BY 1",
    "SELECT count(DISTINCT id) FROM range(100000000000)",
    "SELECT sum(s) FROM (SELECT sum(id) OVER (ORDER BY id) AS s FROM range(10000000000))",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n FROM r, range(1000)) SELECT count(*) FROM r",
    f"SELECT count(*) FROM range(100000000) LATERAL VIEW explode(array({ITEMS})) t LATERAL VIEW explode(array(1, 2)) u",
    "SELECT a.id FROM range(100000000) a WHERE NOT EXISTS (SELECT 1 FROM range(100000000) b WHERE b.id > a.id + 1)",
    "SELECT id, sha2(CAST(id AS string), 512) FROM range(100000000000) LIMIT 1000000",
    "SELECT a.id FROM range(10000000) a FULL OUTER JOIN range(10000000) b ON a.id < b.id",
]

# Queries whose rows must never be returned.
REFUSED = [*MEANINGS, *[text for kind in ATTACKS.values() for text in kind]]

SURVIVED = [*MEMORY, *REGEX, *BOMBS, *ENDLESS]
