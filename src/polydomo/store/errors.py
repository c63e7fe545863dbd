"""What can go wrong with the store: trouble (the disk, the server) and refusals (the job's own state forbids
it).

Trouble passes: the same write may succeed later. A refusal is final: it says that somebody else was first.
"""

from __future__ import annotations

from polydomo.errors import PolydomoError
from polydomo.redaction import redact


class StoreError(PolydomoError):
    """The root of this family. Drivers quote the store's URL; its password is not in the message."""

    code = "store"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(redact(message), hint=hint)


class StoreClosed(StoreError):
    """The store was closed."""

    code = "store-closed"
    hint = "the broker is stopping"


class StoreInvalid(StoreError):
    """What was handed in cannot be stored or understood, however often it is tried."""

    code = "store-invalid"


class StoreUnusable(StoreError):
    """There is something at the given place, but not a store that this version can use."""

    code = "store-unusable"


class StoreNewer(StoreUnusable):
    """A newer version of Polydomo wrote this store; guessing at its meaning could destroy jobs."""

    code = "store-newer"
    hint = "install that version again, or give this one a store of its own"


class StoreLocked(StoreUnusable):
    """Another broker uses this store; two would run every job twice."""

    code = "store-locked"
    hint = "stop the other broker, or give this one a store of its own"


class StoreTrouble(StoreError):
    """Nothing of the batch was written. It is tried again with the next write; no restart is needed."""

    code = "store-trouble"


class StoreBusy(StoreTrouble):
    """More is waiting to be written than may wait, so nothing new is taken."""

    code = "store-busy"
    hint = "try again later, or give the broker a faster disk"


class StoreFull(StoreTrouble):
    """The disk is full."""

    code = "store-full"
    hint = "free some space; jobs are taken again as soon as there is some"


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
    """The write makes no sense in the job's state, and was left out. Others of its batch were written."""

    code = "store-refused"


class UnknownJob(StoreRefusal):
    """There is no such job: it never was, or it was removed."""

    code = "store-unknown-job"


class DuplicateJob(StoreRefusal):
    """A job with this id is there already."""

    code = "store-duplicate"


class DuplicateKey(StoreRefusal):
    """A job with this idempotency key is there already; `existing` is its id."""

    code = "store-duplicate-key"

    def __init__(self, message: str, existing: str) -> None:
        super().__init__(message)
        self.existing = existing


class AlreadyFinished(StoreRefusal):
    """The job's end is recorded, and is recorded once. `state` and `attempt` say whose it is."""

    code = "store-finished"

    def __init__(self, message: str, state: str, attempt: int) -> None:
        super().__init__(message)
        self.state = state
        self.attempt = attempt


class Superseded(StoreRefusal):
    """The attempt was taken away from its worker; `attempt` is the job's latest one."""

    code = "store-superseded"

    def __init__(self, message: str, attempt: int) -> None:
        super().__init__(message)
        self.attempt = attempt


class WrongState(StoreRefusal):
    """The job's state does not allow this."""

    code = "store-wrong-state"
