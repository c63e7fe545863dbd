"""`polydomo spark sql`: a query over the tables, for their owner.

Unlike the SQL service, this command does not restrict queries: its user can read the files with other programs, too.
The tables are views, so that a query cannot change them.
"""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from polydomo.cli import common
from polydomo.cli.option_groups import takes_groups
from polydomo.cli.spark import options
from polydomo.safe_text import safe_cell

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("table", "json", "csv")


@takes_groups
def sql(
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="QUERY", help="SQL, or - for stdin. Default: list the tables and their columns."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="Maximum number of rows; 0: all.")
    ] = 1000,
    form: Annotated[str, typer.Option("--format", metavar="FORMAT", help=f"{', '.join(FORMATS)}.")] = "table",
    *,
    chosen: options.TablesRun,
    as_json: common.Json = False,
) -> None:
    """Run a query over the tables.

    Example: sql "SELECT service, count(*) AS jobs, avg(wait_s) FROM jobs GROUP BY 1 ORDER BY 2 DESC".
    """
    common.check_choice(form, FORMATS, "--format")
    with chosen.lake() as lake:
        if query is None:
            _list(lake.specs, as_json)
            return
        text = sys.stdin.read() if query == "-" else query
        with chosen.session("running the query") as (spark, _):
            own = spark.newSession()  # a program that calls this command may have views of these names
            lake.register(own)
            found = _run(own, text, limit)
    _print(*found, "json" if as_json else form)


def _run(spark: Any, text: str, limit: int) -> tuple[pa.Table, list[str], bool]:
    """Return the rows, the columns' types, and whether there are more rows."""
    from pyspark.errors import AnalysisException

    from polydomo.pipeline.guard import BadQuery, first_lines

    try:
        frame = spark.sql(text)
        rows = (frame.limit(limit + 1) if limit else frame).toArrow()
    except AnalysisException as error:
        hint = "'polydomo spark sql' without a query lists the tables and their columns"
        raise BadQuery(first_lines(str(error)), hint=hint) from None
    kinds = [field.dataType.simpleString() for field in frame.schema.fields]
    more = bool(limit) and rows.num_rows > limit
    return rows.slice(0, limit) if more else rows, kinds, more


def _print(rows: pa.Table, kinds: list[str], more: bool, form: str) -> None:
    from polydomo.pipeline import plain

    names = rows.column_names
    values = plain.rows(rows)
    if form == "json":
        columns = [{"name": name, "type": kind} for name, kind in zip(names, kinds, strict=True)]
        common.print_json({"columns": columns, "rows": values, "count": len(values), "truncated": more})
        return
    if form == "csv":
        writer = csv.writer(sys.stdout)
        writer.writerows([safe_cell(value) for value in row] for row in [names, *values])
    else:
        numeric = ("int", "bigint", "smallint", "tinyint", "double", "float", "decimal")
        heads = [
            f">{name}" if kind.startswith(numeric) else name for name, kind in zip(names, kinds, strict=True)
        ]
        common.show(common.table(heads, [[_cell(value) for value in row] for row in values]))
        if not values:
            common.out.print(Text("no rows", "dim"))
    if more:
        common.err.print(Text(f"only the first {len(values)} rows; --limit 0 prints all", "yellow"))


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value[:40]}…" if isinstance(value, str) and len(value) > 200 else str(value)


_LAYERS = ("silver", "gold", "bronze")


def _list(specs: Any, as_json: bool) -> None:
    """Print all tables and columns with their descriptions, silver tables first."""
    found = sorted(specs.values(), key=lambda spec: _LAYERS.index(spec.layer))
    if as_json:
        common.print_json(
            [
                {
                    "table": spec.name,
                    "layer": spec.layer,
                    "doc": spec.doc,
                    "columns": [c._asdict() for c in spec.columns],
                }
                for spec in found
            ]
        )
        return
    for spec in found:
        common.out.print(Text.assemble((spec.name, "bold"), (f"  {spec.layer}", "dim"), f"  {spec.doc}"))
        common.show(
            common.table(["  column", "type", ""], [[f"  {c.name}", c.kind, c.doc] for c in spec.columns])
        )
