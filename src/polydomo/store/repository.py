"""What the rules see of the jobs: find one, and say what became of it.

Memory's books are dictionaries (`memory.py`); the databases' are a batch of jobs that was loaded before and is
written after (`batch.py`).
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
    """The shelf, as one writer sees it: what is said last counts."""

    @abstractmethod
    def put(self, item: KvItem) -> None:
        """In the place of what has its name."""

    @abstractmethod
    def drop(self, space: str, name: bytes | None) -> None:
        """The item of that name, or the whole space."""

    @abstractmethod
    def trim(self, space: str, now: int, size: int | None) -> None:
        """Remove what has expired, then the oldest (by time, then name) until `size` bytes of values are left."""


class Repository(ABC):
    """The jobs, as one writer sees them."""

    @property
    @abstractmethod
    def shelf(self) -> KvRepository:
        """What is kept by name."""

    @abstractmethod
    def find(self, job_id: str) -> JobProgress | None:
        """The job, if there is one."""

    @abstractmethod
    def holder(self, service: bytes, key: str) -> JobProgress | None:
        """The job that has this idempotency key."""

    @abstractmethod
    def insert(self, job: JobRecord) -> None:
        """A new job."""

    @abstractmethod
    def changed(self, job: JobProgress) -> None:
        """Something of the job's progress is different now, but not its service or state."""

    @abstractmethod
    def moved(self, job: JobProgress, service: bytes, state: str) -> None:
        """It is in another state or at another service; these are the old ones."""

    @abstractmethod
    def revised(self, job: JobProgress, change: JobChange) -> None:
        """Something of the rest of the job is different now."""

    @abstractmethod
    def removed(self, job: JobProgress) -> None:
        """Nothing is left of it."""

    @abstractmethod
    def withdrawn(self, ending: int) -> None:
        """The number of an end that is no longer one. It is not given out again."""

    @abstractmethod
    def settled(self, ending: int) -> None:
        """The ledger has all ends up to this one."""

    @abstractmethod
    def attempt(self, job: JobProgress, record: AttemptRecord) -> None:
        """An attempt has ended without ending the job."""

    @abstractmethod
    def partial(self, job: JobProgress, record: PartialRecord) -> None:
        """One of several answers."""

    @abstractmethod
    def event(self, job: JobProgress, record: EventRecord) -> None:
        """Something that was said about it."""

    @abstractmethod
    def alias(self, job: JobProgress, name: str) -> None:
        """It has a further name."""

    @abstractmethod
    def result(self, job: JobProgress, body: bytes | None) -> None:
        """Its answer; None takes it back."""
