"""Cost of the ledger: the same broker with and without it, in the same run: `python bench/ledger.py`.

See bench/onoff.py for the load, and bench/README.md.

Exit codes: 0 all measured, 1 a broker died or the load stalled, 2 wrong usage.
"""

from __future__ import annotations

import sys

import onoff
from onoff import Goal, Switch

LEDGER = Switch(
    "ledger",
    off=("--data", "data"),
    on=("--data", "data", "--ledger", "auto"),
    goals={"plain": Goal(rps=0.75), "compiled": Goal(rps=0.85)},
)

if __name__ == "__main__":
    sys.exit(onoff.main(LEDGER))
