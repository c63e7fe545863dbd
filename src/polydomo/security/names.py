"""Names that an operator may give to a principal: with a key, a token or a listener.

They have no colon: names with a prefix (`user:1001`) are given by others than the operator.
"""

from __future__ import annotations

import re
from typing import Final

from polydomo.core.principals import ANONYMOUS

# Longest name in characters.
NAME_MAX: Final = 64

_NAME: Final = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._@-]{{0,{NAME_MAX - 1}}}")


def is_name(text: str) -> bool:
    """Return whether an operator may give this name."""
    return _NAME.fullmatch(text) is not None and text != ANONYMOUS
