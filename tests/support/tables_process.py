"""A process that fills tables until it is killed: `python -m tests.support.tables_process DATA STEP N`.

It is killed, with its Java, at the Nth time of a step. Step `none`: it prints when it is running, and is killed by the
test.
"""

from __future__ import annotations

import os
import signal
import sys

from polydomo.pipeline import run as running
from polydomo.pipeline.ingest import Ingest
from polydomo.pipeline.lake import Lake
from polydomo.pipeline.places import places_for
from polydomo.pipeline.session import session
from polydomo.server.settings import BrokerSection, Settings, SparkSection
from tests.pipeline.conftest import QUICK
from tests.support.gold import SERVICE_DAY


def settings(data: str) -> Settings:
    """Return settings with small batches."""
    return Settings(broker=BrokerSection(data=data), spark=SparkSection(files=4))


def main(data: str, step: str, times: int) -> None:
    left = times

    def before(at: str) -> None:
        nonlocal left
        if at == step:
            left -= 1
            if left == 0:
                os.killpg(os.getpgrp(), signal.SIGKILL)

    def refresh(*given: object, **named: object) -> object:
        before("gold")
        return original(*given, **named)  # type: ignore[arg-type]

    original = running.refresh
    running.refresh = refresh  # type: ignore[assignment]
    Ingest.before = staticmethod(before)  # type: ignore[method-assign]
    spark = session("local[2]", QUICK, app="polydomo-doomed")
    print("at work", flush=True)
    with Lake(places_for(settings(data)), [SERVICE_DAY]) as lake:
        running.run(spark, lake, settings(data), once=True)
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
