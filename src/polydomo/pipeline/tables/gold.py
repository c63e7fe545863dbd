"""Gold: the tables of answers, all of them.

Each is made by two functions (GoldTable in spec.py says how they fit together). `delta` already gives one row per
key, so of all silver rows at once it is the table itself: a rebuild needs no `merge`.
"""

from __future__ import annotations

from typing import Final

from polydomo.pipeline.tables.accounting import CLIENT_DAY, DIALECT_MIX, MEMO_SAVINGS
from polydomo.pipeline.tables.objectives import SLO
from polydomo.pipeline.tables.outages import OUTAGES
from polydomo.pipeline.tables.service_minutes import SERVICE_MINUTE
from polydomo.pipeline.tables.spec import GoldTable
from polydomo.pipeline.tables.worker_minutes import WORKER_MINUTE

GOLD: Final[tuple[GoldTable, ...]] = (
    SERVICE_MINUTE,
    WORKER_MINUTE,
    CLIENT_DAY,
    OUTAGES,
    SLO,
    MEMO_SAVINGS,
    DIALECT_MIX,
)
