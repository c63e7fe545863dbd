"""The demo's Spark job, in a process of its own: `python -m polydomo.cli.demo.spark_job DATA`.

Prints one JSON object: a row per service, a row per kind of client, and a capacity plan.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

from polydomo.cli import common, config
from polydomo.cli.spark import session
from polydomo.server.config import Flag

# Options for a quick start.
CONF = ("spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1", "spark.driver.memory=1g")

# The plan's target for the 95th percentile of waiting times, in seconds.
TARGET = 0.5


def main(data: str) -> None:
    """Read the ledger in this folder and print the results."""
    settings = config.load(
        None, [Flag("demo", "spark.master", "local[2]"), Flag("demo", "broker.data", data)]
    ).settings
    from polydomo.pipeline.lake import Lake
    from polydomo.pipeline.places import places_for
    from polydomo.pipeline.plan import plan
    from polydomo.pipeline.run import run
    from polydomo.pipeline.tables.accounting import CLIENT_DAY

    common.OutputMode.json = True
    # One gold table is enough here; the others would only take time.
    with (
        Lake(places_for(settings), gold=[CLIENT_DAY]) as lake,
        session.spark_session(settings, "", conf=CONF) as (spark, _),
    ):
        taken = run(spark, lake, settings, once=True)
        lake.register(spark)
        planned = plan(spark, lake.read(spark, "jobs").where("NOT repeat"), target=TARGET, window="all")
        result = {
            "rows": taken.rows,
            "services": _rows(spark, SERVICES),
            "clients": _rows(spark, CLIENTS),
            "plan": [asdict(need) for need in planned.needs],
        }
    common.print_json(result)


# Jobs as client_day counts them: without the parts of fan-out jobs, and without repeats.
SERVICES = """
SELECT c.service, c.jobs, w.dialects, w.retries, w.wait_s, w.run_s FROM
  (SELECT service, sum(jobs) AS jobs FROM client_day GROUP BY service) c JOIN
  (SELECT service, array_join(sort_array(collect_set(split_part(dialect_in, '/', 1))), ', ') AS dialects,
          sum(greatest(attempts - 1, 0)) AS retries, percentile(wait_s, 0.95) AS wait_s, avg(run_s) AS run_s
     FROM jobs WHERE NOT repeat GROUP BY service) w USING (service)
 ORDER BY jobs DESC, service
"""

CLIENTS = """
SELECT dialects, count(DISTINCT client) AS clients, sum(jobs) AS jobs, sum(run_s) AS run_s,
       sum(bytes_in + bytes_out) AS bytes, array_join(sort_array(collect_set(service)), ', ') AS services
  FROM client_day JOIN
    (SELECT client, min(split_part(dialect_in, '/', 1)) AS dialects FROM jobs GROUP BY client) USING (client)
 GROUP BY dialects ORDER BY jobs DESC
"""


def _rows(spark: Any, query: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in spark.sql(query).collect()]


if __name__ == "__main__":
    main(sys.argv[1])
