"""Credentials of attempts over HTTP: the last part of an attempt's path.

Over HTTP nothing else says that a report comes from the worker that has the job: there is no connection that belongs to
it. So an attempt's token, which is a counter, is followed by a code that only this broker can make. The code is
derived from a secret, not stored, so that it is still valid after a restart; it is bound to the worker, its principal
and the job.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from hashlib import blake2b
from typing import Final

# Bytes of the code: as many random bits as 20 bytes have.
CODE_SIZE: Final = 20

# Between token and code. Neither contains it.
SEPARATOR: Final = b"."


class AttemptKeys:
    """Makes the credentials of attempts, from a secret of 32 bytes."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def credential(self, token: bytes, worker: bytes, principal: str, job: bytes) -> bytes:
        """Return the credential of an attempt of `worker` at a job. It can stand in a path."""
        code = blake2b(key=self._secret, digest_size=CODE_SIZE)
        for part in (token, worker, principal.encode(), job):
            code.update(len(part).to_bytes(4, "big"))
            code.update(part)
        return token + SEPARATOR + urlsafe_b64encode(code.digest()).rstrip(b"=")


def token_in(credential: bytes) -> bytes:
    """Return the token in a credential, which may be invalid."""
    return credential.partition(SEPARATOR)[0]


def is_equal(credential: bytes, expected: bytes) -> bool:
    """Compare in a time that does not depend on where two credentials differ."""
    return hmac.compare_digest(credential, expected)
