"""Bearer tokens: each stands for the principal whose name it has. They are for HTTP clients, which have no key.

    tokens/ID.json      name, hash, when made, when it expires, when it was revoked

The files are in the key folder, and they are all there is: the running broker and `polydomo tokens` work on them. What
the command changes takes effect within CACHE_TIME. A file is found by the hash of the token, so the time that a check
takes says nothing about other tokens; unknown tokens are not remembered.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from polydomo.errors import PolydomoError, ProtocolError
from polydomo.security import entry_files
from polydomo.security.names import NAME_MAX, is_name
from polydomo.security.token_text import BEARER, begins, digest_of, id_of, is_token, new_token

# The folder in the key folder.
FOLDER: Final = "tokens"

# States of a token.
VALID: Final = "valid"
EXPIRED: Final = "expired"
REVOKED: Final = "revoked"
STATES: Final = (VALID, EXPIRED, REVOKED)

# Seconds for which a valid token is not looked up again, and the most that are remembered.
CACHE_TIME: Final = 1.0
CACHED: Final = 10_000


class TokenRefused(ProtocolError):
    """A bearer token is not valid; the reason may be told to its owner."""


class Token(msgspec.Struct, frozen=True):
    """A bearer token as it is stored. Times are seconds since 1970."""

    name: str
    digest: str
    created: float
    expires: float | None = None  # None: never
    revoked: float | None = None

    @property
    def id(self) -> str:
        return id_of(self.digest)

    def state(self, now: float) -> str:
        """Return whether the token is valid, expired or revoked."""
        if self.revoked is not None:
            return REVOKED
        return EXPIRED if self.expires is not None and now >= self.expires else VALID


def check_token_name(name: str) -> None:
    """Raise PolydomoError if a token cannot have this name."""
    if not is_name(name):
        raise PolydomoError(
            f"{name!r} cannot be a principal's name",
            hint=f"1 to {NAME_MAX} letters, digits and . _ @ -, beginning with a letter, a digit or _",
        )


class TokenFolder:
    """The tokens of one broker, in its key folder. `clock` returns seconds since 1970."""

    def __init__(self, keys: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = keys / FOLDER
        self.clock = clock

    def new(self, name: str, lifetime: float | None) -> tuple[str, Token]:
        """Make a token that is valid for `lifetime` seconds, None: for ever. Return its text, which is not stored."""
        check_token_name(name)
        text = new_token(BEARER)
        now = self.clock()
        token = Token(name, digest_of(text), now, None if lifetime is None else now + lifetime)
        self._write(token)
        return text, token

    def entries(self) -> list[Token]:
        """Return all tokens, the oldest first."""
        try:
            files = entry_files.names(self.path)
        except OSError as error:
            raise self._unusable(error, "read") from error
        found = [token for token in map(self._read, files) if token is not None]
        return sorted(found, key=lambda token: (token.created, token.digest))

    def find(self, digest: str) -> Token | None:
        """Return the token with this hash; None: there is none, or its file cannot be read."""
        found = self._read(f"{id_of(digest)}.json")
        return found if found is not None and hmac.compare_digest(found.digest, digest) else None

    def resolve(self, text: str) -> Token:
        """Return the token with an id (or its beginning), the text, or the name if only one valid token has it.

        Raises PolydomoError if there is no such token, or more than one.
        """
        digest = digest_of(text) if is_token(text, BEARER) else ""
        named = [
            one for one in self.entries() if one.digest == digest or begins(one.id, text) or one.name == text
        ]
        now = self.clock()
        found = [one for one in named if one.state(now) == VALID] if len(named) > 1 else named
        if not found:
            raise PolydomoError("there is no such token", hint="'polydomo tokens ls' lists them")
        if len(found) > 1:
            ids = ", ".join(token.id for token in found)
            raise PolydomoError(f"{text!r} stands for {len(found)} tokens", hint=f"say which: {ids}")
        return found[0]

    def revoke(self, token: Token) -> Token:
        """Refuse a token from now on, and return it."""
        revoked = msgspec.structs.replace(token, revoked=self.clock())
        self._write(revoked)
        return revoked

    def _read(self, file: str) -> Token | None:
        """Return the token in a file. A file that cannot be read counts as missing, so its token is not valid."""
        try:
            token = msgspec.json.decode((self.path / file).read_bytes(), type=Token)
        except (OSError, ValueError):  # msgspec's errors are ValueErrors
            return None
        return token if file == f"{token.id}.json" else None

    def _write(self, token: Token) -> None:
        try:
            entry_files.make_folder(self.path.parent)
            entry_files.write(self.path / f"{token.id}.json", msgspec.structs.asdict(token), durable=True)
        except OSError as error:
            raise self._unusable(error, "change") from error

    def _unusable(self, error: OSError, what: str) -> PolydomoError:
        return PolydomoError(
            f"cannot {what} the tokens in {self.path}: {error.strerror}",
            hint="run this as the user that runs the broker",
        )


class TokenChecker:
    """Checks the tokens of requests."""

    def __init__(self, folder: TokenFolder) -> None:
        self._folder = folder
        self._valid: dict[
            str, tuple[Token, float]
        ] = {}  # by hash, with the time of the next look at the file

    def principal_of(self, text: str) -> str:
        """Return the name of the principal that a token stands for; raise TokenRefused if it is not valid."""
        if not is_token(text, BEARER):
            raise TokenRefused("the token is malformed")
        digest = digest_of(text)
        now = self._folder.clock()
        token, again = self._valid.get(digest, (None, 0.0))
        if token is None or not now < again <= now + CACHE_TIME:  # the clock may be set back
            token = self._folder.find(digest)
            self._valid.pop(digest, None)
            if token is None:
                raise TokenRefused("the token is unknown")
            if len(self._valid) >= CACHED:
                self._valid.clear()
            self._valid[digest] = token, now + CACHE_TIME
        state = token.state(now)
        if state != VALID:
            raise TokenRefused(f"the token {token.id} of {token.name} {_REASONS[state]}")
        return token.name


_REASONS: Final = {EXPIRED: "has expired", REVOKED: "was revoked"}
