"""Join tokens: each lets in the owner of one key, under the name that the operator has chosen.

    invitations/ID.json     name, hash of the token, when made, when it expires

The files are in the key folder. A peer presents the token in the handshake, encrypted with the broker's public key, and
its key is accepted at once. Removing the file is what uses the token up: of two peers with the same one, also at two
brokers with the same key folder, only one removes it.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from polydomo import private_files
from polydomo.errors import PolydomoError, ProtocolError
from polydomo.security import entry_files
from polydomo.security.token_text import JOIN, digest_of, id_of, is_token, new_token

# The folder in the key folder.
FOLDER: Final = "invitations"


class InvitationRefused(ProtocolError):
    """A join token is not valid, or no longer."""


class Invitation(msgspec.Struct, frozen=True):
    """A join token as it is stored. Times are seconds since 1970."""

    name: str
    digest: str
    created: float
    expires: float

    @property
    def id(self) -> str:
        return id_of(self.digest)


class Invitations:
    """The join tokens of one broker, in its key folder. `clock` returns seconds since 1970."""

    def __init__(self, keys: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = keys / FOLDER
        self._clock = clock

    def new(self, name: str, lifetime: float) -> tuple[str, Invitation]:
        """Make a token that is valid for `lifetime` seconds. Return its text, which is not stored."""
        text = new_token(JOIN)
        now = self._clock()
        invitation = Invitation(name, digest_of(text), now, now + lifetime)
        try:
            entry_files.make_folder(self.path.parent)
            entry_files.write(self._file(invitation), msgspec.structs.asdict(invitation), durable=True)
            self._remove_expired()
        except OSError as error:
            raise self._unusable(error) from error
        return text, invitation

    def open(self) -> list[Invitation]:
        """Return the tokens that can be used, the oldest first."""
        try:
            files = entry_files.names(self.path)
        except OSError as error:
            raise self._unusable(error) from error
        now = self._clock()
        found = [one for one in map(self._read, files) if one is not None and now < one.expires]
        return sorted(found, key=lambda one: (one.created, one.digest))

    def find(self, text: str) -> Invitation:
        """Return what a token stands for; raise InvitationRefused if it cannot be used."""
        if not is_token(text, JOIN):
            raise InvitationRefused("the join token is malformed")
        digest = digest_of(text)
        found = self._read(f"{id_of(digest)}.json")
        if found is None or not hmac.compare_digest(found.digest, digest):
            raise InvitationRefused(f"the join token {id_of(digest)} is unknown, or was used")
        if self._clock() >= found.expires:
            raise InvitationRefused(f"the join token {found.id} for {found.name} has expired")
        return found

    def use(self, invitation: Invitation) -> None:
        """Use a token up; raise InvitationRefused if another peer has just done so, and OSError if it cannot be."""
        try:
            self._file(invitation).unlink()
        except FileNotFoundError:
            raise InvitationRefused(f"the join token {invitation.id} was used") from None
        private_files.sync(self.path)

    def withdraw(self, name: str) -> int:
        """Remove the tokens for a name, and return how many there were."""
        found = [one for one in self.open() if one.name == name]
        try:
            for one in found:
                self._file(one).unlink(missing_ok=True)
        except OSError as error:
            raise self._unusable(error) from error
        return len(found)

    def _file(self, invitation: Invitation) -> Path:
        return self.path / f"{invitation.id}.json"

    def _read(self, file: str) -> Invitation | None:
        """Return the invitation in a file. A file that cannot be read counts as missing."""
        try:
            found = msgspec.json.decode((self.path / file).read_bytes(), type=Invitation)
        except (OSError, ValueError):  # msgspec's errors are ValueErrors
            return None
        return found if file == f"{found.id}.json" else None

    def _remove_expired(self) -> None:
        now = self._clock()
        for file in entry_files.names(self.path):
            found = self._read(file)
            if found is not None and now >= found.expires:
                (self.path / file).unlink(missing_ok=True)

    def _unusable(self, error: OSError) -> PolydomoError:
        return PolydomoError(
            f"cannot change the invitations in {self.path}: {error.strerror}",
            hint="run this as the user that runs the broker",
        )
