"""The page about tables: the ledger's own, and those that Spark makes, from their descriptions in the code."""

from __future__ import annotations

from markdown_parts import escape, flow, table

from polydomo.ledger import schema as ledger
from polydomo.pipeline.tables.bronze import BRONZE
from polydomo.pipeline.tables.gold import GOLD
from polydomo.pipeline.tables.silver import SILVER
from polydomo.pipeline.tables.spec import TableSpec

LAYERS = {
    "Bronze": "Which segments of the ledger were taken, and which were not. Their rows are not copied.",
    "Silver": """
        Every job, every attempt and every happening once, with what follows from its own row. The columns are the
        ledger's and some more.
    """,
    "Gold": """
        Answers, kept up to date. Where a job was for several workers, a table counts either *runs* (ordinary jobs, and
        the parts that workers did) or *what was asked for* (ordinary jobs, and the whole): its text says which.
        Repeats, jobs that were asked for once more and answered with the first one's answer, are counted by neither.
        Sums of times are exact to the microsecond, whether a table was made in one go or step by step.
    """,
}


def tables_page() -> list[str]:
    """Every table and column."""
    parts = [
        "Tables",
        flow("""
            The broker writes a [ledger](../how-to/ledger.md), `polydomo spark run` makes tables of it, and [everything
            that reads Iceberg](../how-to/read-the-tables.md) can read those. Times are UTC; a day is a day in UTC.
            Names of columns that end in `_s` are seconds, in `_us` microseconds. A later version may add columns.
        """),
        "## Ledger",
        flow("""
            Parquet files (*segments*) in a folder per table; not Iceberg tables. Two rows that agree in the key are
            the same row, written twice: after a crash the broker writes again what may be missing.
        """),
    ]
    for one in ledger.TABLES:
        rows = [
            [f"`{column.name}`", column.kind, "yes" if column.nullable else "", escape(column.doc)]
            for column in one.columns
        ]
        parts += [
            f"### ledger: {one.name}",
            f"{one.doc} Key: {_names(one.key)}.",
            table(["column", "type", "may be null", "meaning"], rows),
        ]
    gold = tuple(one.spec for one in GOLD)
    for (title, text), specs in zip(LAYERS.items(), (BRONZE, SILVER, gold), strict=True):
        parts += [f"## {title}", flow(text)]
        for spec in specs:
            parts += _table(spec)
    return parts


def _table(spec: TableSpec) -> list[str]:
    rows = [[f"`{column.name}`", column.kind, escape(column.doc)] for column in spec.columns]
    return [
        f"### {spec.name}",
        f"{spec.doc} Key: {_names(spec.key)}. Partitions: `{spec.partition}`.",
        table(["column", "type", "meaning"], rows),
    ]


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)
