"""Gold: the list of all aggregate tables. GoldTable in spec.py explains how they are computed."""

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
