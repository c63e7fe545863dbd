"""Texts of tokens: a prefix that says what the token is for, and 40 random letters and digits (238 bits).

Only the SHA-256 of a token is stored. A slow hash, as for passwords, would add nothing: nobody can try 2^238 texts.
A token's id, the beginning of its hash, may be shown to anybody. `polydomo.redaction` masks tokens by their form.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
from typing import Final

# Of bearer tokens, and of join tokens.
BEARER: Final = "pdm_"
JOIN: Final = "pdj_"

LENGTH: Final = 40
ALPHABET: Final = string.ascii_letters + string.digits

# Hexadecimal digits of an id, and the fewest that stand for it.
ID_DIGITS: Final = 16
ID_DIGITS_MIN: Final = 6

_TOKEN: Final = re.compile(rf"(?:{BEARER}|{JOIN})[A-Za-z0-9]{{{LENGTH}}}")
_ID: Final = re.compile(rf"[0-9a-f]{{{ID_DIGITS_MIN},{ID_DIGITS}}}")


def new_token(prefix: str) -> str:
    """Return a new token."""
    return prefix + "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))


def is_token(text: str, prefix: str) -> bool:
    """Return whether a text has the form of a token with this prefix."""
    return text.startswith(prefix) and _TOKEN.fullmatch(text) is not None


def digest_of(token: str) -> str:
    """Return the hash that is stored of a token."""
    return hashlib.sha256(token.encode("ascii", "replace")).hexdigest()


def id_of(digest: str) -> str:
    """Return the id of the token with this hash."""
    return digest[:ID_DIGITS]


def begins(id: str, text: str) -> bool:
    """Return whether a text is the beginning of an id, and long enough to stand for it."""
    return _ID.fullmatch(text.lower()) is not None and id.startswith(text.lower())
