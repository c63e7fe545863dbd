"""The reference page of tables: the ledger's and the pipeline's, generated from their specifications."""

from __future__ import annotations

from markdown_parts import escape, flow, table

from polydomo.ledger import schema as ledger
from polydomo.pipeline.tables.bronze import BRONZE
from polydomo.pipeline.tables.gold import GOLD
from polydomo.pipeline.tables.silver import SILVER
from polydomo.pipeline.tables.spec import TableSpec

LAYERS = {
    "Bronze": "Which segments of the ledger were accepted, and which were rejected. Their rows are not copied.",
    "Silver": """
        Every job, every attempt and every event once, with values derived from its row. The columns are the ledger's
        and some more.
    """,
    "Gold": """
        Aggregates, kept up to date. For jobs for several workers, a table counts either *runs* (ordinary jobs, and the
        parts that workers ran) or *asked* jobs (ordinary jobs, and parents): its text says which. Repeats, second
        requests for a job that were answered with the first one's result, are counted by neither. Sums of times are
        exact to the microsecond, whether a table was computed at once or in steps.
    """,
}


def tables_page() -> list[str]:
    """Return the page of all tables and columns."""
    parts = [
        "Tables",
        flow("""
            The broker writes a [ledger](../how-to/ledger.md), `polydomo spark run` turns it into tables, and
            [everything that reads Iceberg](../how-to/read-the-tables.md) can read them. Times are UTC; a day is
            a day in UTC. Names of columns that end in `_s` are seconds, in `_us` microseconds. A later version
            may add columns.
        """),
        "## Ledger",
        flow("""
            Parquet files (*segments*) in a folder per table; not Iceberg tables. Rows with the same key are
            duplicates: after a crash the broker writes rows again that may be missing.
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
