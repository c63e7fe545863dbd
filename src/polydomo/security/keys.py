"""The folder with the broker's own key pair and the clients' public keys.

    broker.key              the broker's key pair (`key_files`)
    accepted/DIGEST.json    a client key each: name, public key, when and from which address it was first seen
    pending/DIGEST.json     keys that wait for the operator's decision
    rejected/DIGEST.json    keys that are refused, and accepted keys that were revoked

The folder is all there is: the running broker and `polydomo keys` work on the same files, and neither keeps a copy. A
file is written under another name and renamed. A key that changes its state is written to its new folder before it is
removed from the old one; if it is in two, because a process was killed in between, the stricter one counts.

Pending keys come from strangers: their number is limited (the oldest is removed), so is the rate at which they are
recorded, and the name and the address are cleaned and truncated.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from polydomo.errors import ConfigError, PolydomoError
from polydomo.safe_text import safe_line
from polydomo.security import entry_files
from polydomo.security.key_files import create_key_pair, fingerprint, read_key_pair
from polydomo.security.names import NAME_MAX, is_name
from polydomo.wire.curve.keys import KeyPair, decode_key, encode_key

# The file with the broker's own key pair.
BROKER_KEY: Final = "broker.key"

ACCEPTED: Final = "accepted"
PENDING: Final = "pending"
REJECTED: Final = "rejected"

# The stricter one first.
STATES: Final = (REJECTED, ACCEPTED, PENDING)

# Longest address in characters.
ADDRESS_MAX: Final = 80

# Pending keys recorded per second. A handshake needs no file for a known key, so only strangers are slowed down.
RATE: Final = 20

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._@-]")

# Fewest digits that are taken for the beginning of a fingerprint, and texts of that form.
DIGITS_MIN: Final = 8
_DIGITS: Final = re.compile(rf"-*([0-9A-Fa-f]-*){{{DIGITS_MIN},}}")


class ClientKey(msgspec.Struct, frozen=True):
    """A client's public key in the folder."""

    name: str
    key: str  # Z85
    seen: float  # seconds since 1970
    address: str  # where the key was first seen; empty: the operator entered it
    state: str = ""  # not in the file: the folder says it

    @property
    def fingerprint(self) -> str:
        return fingerprint(decode_key(self.key))

    @property
    def file(self) -> str:
        return file_name(decode_key(self.key))


class KeyFolder:
    """A key folder, created on first use. `clock` returns seconds since 1970."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        self._second = 0  # in which `_recorded` counts
        self._recorded = 0

    # The broker's own key

    def open(self) -> KeyPair:
        """Create what is missing and return the broker's key pair. Raises ConfigError if the folder cannot be used."""
        path = self.path / BROKER_KEY
        try:
            for folder in (self.path, *(self.path / state for state in STATES)):
                entry_files.make_folder(folder)
            if not path.exists():
                with suppress(FileExistsError):  # another process has just made it
                    create_key_pair(path)
                    entry_files.give_to_owner(path)
        except OSError as error:
            raise ConfigError(
                f"cannot use the key folder {self.path}: {error.strerror}", hint="set security.keys or --data"
            ) from error
        return read_key_pair(path)

    # What the broker asks

    def find(self, public: bytes) -> ClientKey | None:
        """Return a key with its state; None: it is unknown."""
        for state in STATES:
            found = self._read(state, file_name(public))
            if found is not None and found.key == encode_key(public):
                return found
        return None

    def accepted(self) -> set[str]:
        """Return the file names of all accepted keys (`ClientKey.file`), without those that are rejected as well."""
        return set(self._names(ACCEPTED)) - set(self._names(REJECTED))

    def record(self, public: bytes, name: str, address: str, state: str, limit: int) -> ClientKey | None:
        """Record an unknown key as pending or accepted; None: too many are recorded in this second.

        `limit` pending keys are kept: the oldest ones are removed.
        """
        now = self._clock()
        if int(now) != self._second:
            self._second = int(now)
            self._recorded = 0
        self._recorded += 1
        if self._recorded > RATE:
            return None
        entry = ClientKey(
            suggested_name(name, public), encode_key(public), now, safe_line(address, ADDRESS_MAX), state
        )
        if state == PENDING:
            self._make_room(limit - 1)
        elif any(other.name == entry.name for other in self.entries(ACCEPTED)):
            entry = msgspec.structs.replace(entry, name=fingerprint(public))
        self._write(entry)
        return entry

    def describe(self, public: bytes, address: str) -> ClientKey:
        """Return an unknown key as it may be moved to a state."""
        shown = safe_line(address, ADDRESS_MAX)
        return ClientKey(fingerprint(public), encode_key(public), self._clock(), shown)

    def is_free(self, name: str, public: bytes) -> bool:
        """Return whether no accepted key but this one has the name."""
        key = encode_key(public)
        return not any(other.name == name and other.key != key for other in self.entries(ACCEPTED))

    # What the operator asks

    def entries(self, *states: str) -> list[ClientKey]:
        """Return the keys in these states, all by default, each once, the oldest first."""
        found: dict[str, ClientKey] = {}
        for state in STATES:
            for file in self._names(state):
                entry = self._read(state, file)
                if entry is not None:
                    found.setdefault(file, entry)
        wanted = states or STATES
        return sorted(
            (entry for entry in found.values() if entry.state in wanted), key=lambda one: (one.seen, one.key)
        )

    def resolve(self, text: str) -> ClientKey:
        """Return the key with a name, a fingerprint (or its beginning) or a text; it need not be in the folder.

        Raises PolydomoError if there is no such key, or more than one.
        """
        with suppress(ValueError):
            public = decode_key(text)
            return self.find(public) or self.describe(public, "")
        found = [entry for entry in self.entries() if text == entry.name or _begins(entry.fingerprint, text)]
        if not found:
            raise PolydomoError(f"there is no key {text!r}", hint="'polydomo keys ls' lists them")
        if len(found) > 1:
            prints = ", ".join(entry.fingerprint for entry in found)
            raise PolydomoError(f"{text!r} is the name of {len(found)} keys", hint=f"say which: {prints}")
        return found[0]

    def move(self, entry: ClientKey, state: str, name: str = "") -> ClientKey:
        """Give a key a state, and a name if one is given, and return it. Raises PolydomoError if an accepted key has
        the name."""
        name = name or entry.name
        if name != entry.fingerprint:
            check_name(name)
        if state == ACCEPTED and not self.is_free(name, decode_key(entry.key)):
            raise PolydomoError(
                f"another accepted key has the name {name!r}", hint="give this one another with --name"
            )
        moved = msgspec.structs.replace(entry, name=name, state=state)
        try:
            self._write(moved, durable=True)
            for other in STATES:
                if other != state:
                    (self.path / other / moved.file).unlink(missing_ok=True)
        except OSError as error:
            raise PolydomoError(
                f"cannot change the key folder {self.path}: {error.strerror}",
                hint="run this as the user that runs the broker",
            ) from error
        return moved

    # Files

    def _names(self, state: str) -> list[str]:
        try:
            return entry_files.names(self.path / state)
        except OSError as error:
            raise PolydomoError(
                f"cannot read the key folder {self.path}: {error.strerror}",
                hint="run this as the user that runs the broker",
            ) from error

    def _read(self, state: str, file: str) -> ClientKey | None:
        """Return the key in a file. A file that cannot be read counts as missing, so its key is not accepted."""
        try:
            entry = msgspec.json.decode((self.path / state / file).read_bytes(), type=ClientKey)
            if entry.file != file:
                return None
        except (OSError, ValueError):  # msgspec's errors are ValueErrors
            return None
        return msgspec.structs.replace(entry, state=state)

    def _write(self, entry: ClientKey, *, durable: bool = False) -> None:
        """Write a key's file; with `durable`, wait until it is on disk."""
        fields = msgspec.structs.asdict(entry)
        del fields["state"]
        entry_files.write(self.path / entry.state / entry.file, fields, durable=durable)

    def _make_room(self, limit: int) -> None:
        """Remove the oldest pending keys until there are at most `limit`."""
        names = self._names(PENDING)
        if len(names) > limit:
            paths = [self.path / PENDING / name for name in names]
            ages = sorted((_modified(path), path) for path in paths)
            for _, path in ages[: len(names) - limit]:
                path.unlink(missing_ok=True)


def file_name(public: bytes) -> str:
    """Return the name of a key's file."""
    return f"{hashlib.sha256(public).hexdigest()}.json"


def suggested_name(name: str, public: bytes) -> str:
    """Return a name for a key from the text that its owner sent: cleaned, truncated, or replaced by the fingerprint."""
    cleaned = _NOT_IN_NAMES.sub("_", name[:NAME_MAX])
    return cleaned if _is_name(cleaned) else fingerprint(public)


def check_name(name: str) -> None:
    """Raise PolydomoError if a key cannot be given this name."""
    if not _is_name(name):
        raise PolydomoError(
            f"{name!r} cannot be a key's name",
            hint=f"1 to {NAME_MAX} letters, digits and . _ @ -; it must not look like a key or a fingerprint",
        )


def _is_name(text: str) -> bool:
    """Return whether a key may have this name: it must not be mistaken for another key or its fingerprint."""
    if not is_name(text) or _DIGITS.fullmatch(text):
        return False
    try:
        decode_key(text)
    except ValueError:
        return True
    return False


def _begins(whole: str, text: str) -> bool:
    """Return whether a text is the beginning of a fingerprint, with or without hyphens."""
    return bool(_DIGITS.fullmatch(text)) and whole.replace("-", "").startswith(text.replace("-", "").lower())


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
