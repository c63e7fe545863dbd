"""The jobs and items as write operations see them: find a job, and save changes to it.

`memory.py` implements it with dictionaries, `batch.py` with a batch of jobs that is loaded from a database before and
written after.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from polydomo.store.records import (
    AttemptRecord,
    EventRecord,
    JobChange,
    JobProgress,
    JobRecord,
    KvItem,
    PartialRecord,
)


class KvRepository(ABC):
    """The items of the key-value store."""

    @abstractmethod
    def put(self, item: KvItem) -> None:
        """Add the item, or replace the one with its name."""

    @abstractmethod
    def drop(self, space: str, name: bytes | None) -> None:
        """Remove the item with that name, or all items of the space."""

    @abstractmethod
    def trim(self, space: str, now: int, size: int | None) -> None:
        """Remove expired items, then the oldest (by time, then name) until `size` bytes of values are left."""


class Repository(ABC):
    """The jobs. Operations change a job's fields, then call the method that saves them."""

    @property
    @abstractmethod
    def kv(self) -> KvRepository:
        """The items of the key-value store."""

    @abstractmethod
    def find(self, job_id: str) -> JobProgress | None:
        """Return the job with this id."""

    @abstractmethod
    def find_by_key(self, service: bytes, key: str) -> JobProgress | None:
        """Return the job that has this idempotency key."""

    @abstractmethod
    def insert(self, job: JobRecord) -> None:
        """Add a new job, whose id and key are free."""

    @abstractmethod
    def save_progress(self, job: JobProgress) -> None:
        """Save the job's progress; its state is unchanged."""

    @abstractmethod
    def save_state(self, job: JobProgress, old: str) -> None:
        """Save the job's progress, with a state other than `old`."""

    @abstractmethod
    def save_change(self, job: JobProgress, change: JobChange) -> None:
        """Change fields of the job that are not part of its progress."""

    @abstractmethod
    def remove(self, job: JobProgress) -> None:
        """Remove the job and everything that belongs to it."""

    @abstractmethod
    def withdraw_ending(self, ending: int) -> None:
        """Remember a number that no longer belongs to an end, so that it is not assigned again."""

    @abstractmethod
    def set_ledger_position(self, ending: int) -> None:
        """Record that the ledger has every end up to this one; a lower number changes nothing."""

    @abstractmethod
    def add_attempt(self, job: JobProgress, record: AttemptRecord) -> None:
        """Add an attempt that ended without finishing the job."""

    @abstractmethod
    def add_partial(self, job: JobProgress, record: PartialRecord) -> None:
        """Add a partial reply of the job."""

    @abstractmethod
    def add_event(self, job: JobProgress, record: EventRecord) -> None:
        """Add an event of the job."""

    @abstractmethod
    def add_alias(self, job: JobProgress, name: str) -> None:
        """Add an alias; another job that has it loses it."""

    @abstractmethod
    def set_result(self, job: JobProgress, body: bytes | None) -> None:
        """Save the body of the job's result; None removes it."""
