"""Errors of the store: trouble (of the disk or the server) and refusals (the job's state forbids the write).

Trouble is temporary: the same write may succeed later. A refusal is final: another write came first.
"""

from __future__ import annotations

from polydomo.errors import PolydomoError
from polydomo.redaction import redact


class StoreError(PolydomoError):
    """The base class of this family. Passwords of URLs, which drivers quote, are removed from the message."""

    code = "store"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(redact(message), hint=hint)


class StoreClosed(StoreError):
    """The store was closed."""

    code = "store-closed"
    hint = "the broker is stopping"


class StoreInvalid(StoreError):
    """An argument cannot be stored or understood. Retrying does not help."""

    code = "store-invalid"


class StoreUnusable(StoreError):
    """The given place holds something other than a store that this version can use."""

    code = "store-unusable"


class StoreNewer(StoreUnusable):
    """A newer version of Polydomo wrote this store; using it could destroy jobs."""

    code = "store-newer"
    hint = "install that version again, or give this one a store of its own"


class StoreLocked(StoreUnusable):
    """Another broker uses this store; two would run every job twice."""

    code = "store-locked"
    hint = "stop the other broker, or give this one a store of its own"


class StoreTrouble(StoreError):
    """Nothing of the batch was written. The next write is tried again; no restart is needed."""

    code = "store-trouble"


class StoreBusy(StoreTrouble):
    """Too many bytes wait to be written, so new jobs are refused."""

    code = "store-busy"
    hint = "try again later, or give the broker a faster disk"


class StoreFull(StoreTrouble):
    """The disk is full."""

    code = "store-full"
    hint = "free some space; jobs are accepted again as soon as there is some"


class StoreReadonly(StoreTrouble):
    """The disk or the database cannot be written to."""

    code = "store-readonly"
    hint = "make it writable again; no restart is needed"


class StoreIO(StoreTrouble):
    """Reading or writing failed below the database."""

    code = "store-io"
    hint = "look at the system's log for disk errors"


class StoreCorrupt(StoreTrouble):
    """The database's file is damaged."""

    code = "store-corrupt"
    hint = "stop the broker and restore the file from a backup ('polydomo store backup' makes them)"


class StoreUnreachable(StoreTrouble):
    """The database server does not answer."""

    code = "store-unreachable"
    hint = "is the server running? the broker connects again by itself"


class StoreRefusal(StoreError):
    """The job's state does not allow the write. Other writes of its batch were written."""

    code = "store-refused"


class UnknownJob(StoreRefusal):
    """There is no such job: it never existed, or it was removed."""

    code = "store-unknown-job"


class DuplicateJob(StoreRefusal):
    """A job with this id exists already."""

    code = "store-duplicate"


class DuplicateKey(StoreRefusal):
    """A job with this idempotency key exists already."""

    code = "store-duplicate-key"


class AlreadyFinished(StoreRefusal):
    """The job's end is recorded already, and is recorded only once."""

    code = "store-finished"


class Superseded(StoreRefusal):
    """The attempt was revoked from its worker; the job has a later one."""

    code = "store-superseded"


class WrongState(StoreRefusal):
    """The job's state does not allow the write."""

    code = "store-wrong-state"
