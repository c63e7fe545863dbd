"""Cost of roles: the same broker with and without them, in the same run: `python bench/roles.py`.

The peers have no keys and are `anonymous`, which may call and serve `echo`. As in a real configuration, its roles have
grants for other services, too, which are looked at first. See bench/onoff.py for the load, and bench/README.md.

Exit codes: 0 all measured, 1 a broker died or the load stalled, 2 wrong usage.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import onoff
from onoff import Goal, Switch

CONFIG = """\
[security]
roles = "on"

[roles.shop]
call = ["billing.*", "mail.*@eu-*", "echo"]
serve = ["resize", "echo"]

[principals]
anonymous = ["observer", "shop"]
"worker-*" = ["worker"]
"""
GOALS = {"plain": Goal(cpu=1.05), "compiled": Goal(cpu=1.05)}


def main(argv: list[str] | None = None) -> int:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "roles.toml")
        config.write_text(CONFIG)
        return onoff.main(Switch("roles", off=(), on=("--config", str(config)), goals=GOALS), argv)


if __name__ == "__main__":
    sys.exit(main())
