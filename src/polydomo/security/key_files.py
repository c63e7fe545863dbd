"""Files with a CURVE key pair, and the fingerprints of public keys.

A file has the form of ZeroMQ's certificates (ZPL, RFC 4), so that `zmq.auth.load_certificate` and czmq read our files,
and we read theirs and norfab's:

    curve
        public-key = "40 characters of Z85"
        secret-key = "40 characters of Z85"

Secret keys are registered with `polydomo.redaction` as soon as they are read or made.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Final

from polydomo import private_files, redaction
from polydomo.errors import ConfigError
from polydomo.wire.curve.keys import KeyPair, decode_key, encode_key, new_key_pair

# A larger file is not read.
LARGEST: Final = 16 * 1024

# Hexadecimal digits of a fingerprint, in groups of four. A second key for the same 80 bits cannot be found.
FINGERPRINT_DIGITS: Final = 20

_SECRET: Final = re.compile(r"^\s*secret-key\s*=\s*[\"']?([^\"'\s]+)[\"']?\s*$", re.MULTILINE)


def fingerprint(public: bytes) -> str:
    """Return a short text for people to compare a public key by."""
    digits = hashlib.sha256(public).hexdigest()[:FINGERPRINT_DIGITS]
    return "-".join(digits[start : start + 4] for start in range(0, FINGERPRINT_DIGITS, 4))


def read_key_pair(path: Path) -> KeyPair:
    """Return the key pair in a file; raise ConfigError, without quoting the file, if there is none."""
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST).decode("utf-8", "replace")
    except OSError as error:
        raise ConfigError(
            f"the key file {path} cannot be read: {error.strerror}",
            hint="make one with 'polydomo keys new FILE'",
        ) from error
    found = _SECRET.search(text)
    if found is None:
        raise ConfigError(
            f"the key file {path} has no secret-key", hint="make one with 'polydomo keys new FILE'"
        )
    redaction.learn([found[1]])
    try:
        return KeyPair(decode_key(found[1]))
    except ValueError as error:
        raise ConfigError(f"the secret-key in {path} is not valid: {error}", hint="") from None


def create_key_pair(path: Path) -> KeyPair:
    """Make a key pair and write it to a new file that only its owner can read. Raises FileExistsError if there is one.

    The file appears complete or not at all, also if two processes create it at the same time.
    """
    pair = new_key_pair(os.urandom)
    secret = encode_key(pair.secret)
    redaction.learn([secret])
    text = f'curve\n    public-key = "{encode_key(pair.public)}"\n    secret-key = "{secret}"\n'
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        private_files.make_file(temporary)
        temporary.write_text(text, encoding="ascii")
        private_files.sync(temporary)
        os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    private_files.sync(path.parent)
    return pair


def open_to(path: Path) -> str:
    """Return a description of who else can read a key file; empty if only its owner can, or if there is none."""
    try:
        return private_files.open_to(path)
    except OSError:
        return ""
