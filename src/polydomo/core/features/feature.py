"""The interface of a feature: one promise about jobs, kept at the points of a job's life where it matters.

`Tracking` calls the features in order. At the first three points below a feature may *take* a job: hold it
(`Tracking.hold`) until something has happened and then let it `proceed`, or end it. All other points are only told.

1. `on_submit`: a job has come, and is not accepted yet.
2. `on_ready`: the job is accepted and may go to a worker.
3. `on_conclude`: the job has a result or a failure, and its client has not been told.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from polydomo.core.failure import Failure
from polydomo.core.model import Job, Service, Worker
from polydomo.core.tracked_job import TrackedJob

# Decisions.
PASS: Final = 0  # the job goes on to the next feature
TAKEN: Final = 1  # the feature has the job now: it holds it, or has ended it
LATER: Final = 2  # of `on_cancel` only: the job ends by itself, as soon as it can


@mypyc_attr(allow_interpreted_subclasses=True)
class Feature:
    """One promise about jobs. Every method may be overridden; none has to be."""

    def applies(self, service: Service) -> bool:
        """Return whether all jobs of a service pass the features, also those without options."""
        return False

    def on_submit(self, job: TrackedJob) -> int:
        """Decide about a job that is not accepted yet."""
        return PASS

    def on_ready(self, job: TrackedJob) -> int:
        """Decide about a job that may go to a worker."""
        return PASS

    def on_restore(self, job: TrackedJob) -> None:
        """Hear of an unfinished job of before the restart, which goes on now."""

    def on_dispatch(self, job: TrackedJob) -> None:
        """Hear that a job goes to `job.worker`."""

    def on_partial(self, job: TrackedJob, body: bytes) -> None:
        """Hear one of several replies."""

    def on_event(self, job: TrackedJob, name: bytes, kind: str, body: bytes) -> None:
        """Hear an event of the worker `name`."""

    def on_reply(self, job: TrackedJob, body: bytes) -> None:
        """Hear the last reply of a job's worker."""

    def on_failure(self, job: TrackedJob, failure: Failure) -> None:
        """Hear that a job will have no result."""

    def on_retry(self, job: Job) -> int:
        """Decide about a job that lost an attempt and has more. Plain jobs come here, too."""
        return PASS

    def on_conclude(self, job: TrackedJob) -> int:
        """Decide about a job that has `job.result` or `job.failure`."""
        return PASS

    def on_end(self, job: TrackedJob, body: bytes | None, failure: Failure | None) -> None:
        """Hear that a job has ended, just before its client does."""

    def on_cancel(self, job: Job, failure: Failure) -> int:
        """Release a held job that is cancelled (TAKEN), or let it end by itself (LATER). PASS: held by another."""
        return PASS

    def pin(self, job: TrackedJob) -> bytes:
        """Return the only worker that may do a job for a resource; empty: that is another feature's matter."""
        return b""

    def on_register(self, worker: Worker, service: Service) -> None:
        """Hear that a worker offers a service."""

    def on_withdraw(self, worker: Worker, service: Service) -> None:
        """Hear that a worker offers a service no longer."""

    def on_close(self) -> None:
        """End jobs that wait for something that will not happen any more: the broker stops."""

    def is_writing(self) -> bool:
        """Return whether something has to reach the disk before the broker may stop."""
        return False


class Features:
    """The features of a broker in order, and for each point on a job's usual way those that do something there.

    Most features do nothing at most points. Calling them all the same took a third of a tracked job's time.
    """

    def __init__(self, features: list[Feature]) -> None:
        self.all = features
        self._index()

    def insert(self, place: int, feature: Feature) -> None:
        """Add a feature before the one at `place`, which counts as in a list."""
        self.all.insert(place, feature)
        self._index()

    def _index(self) -> None:
        self.on_submit = self._at("on_submit")
        self.on_ready = self._at("on_ready")
        self.on_dispatch = self._at("on_dispatch")
        self.on_partial = self._at("on_partial")
        self.on_event = self._at("on_event")
        self.on_reply = self._at("on_reply")
        self.on_conclude = self._at("on_conclude")
        self.on_end = self._at("on_end")

    def _at(self, point: str) -> list[Feature]:
        """Return the features whose class overrides a method."""
        default = getattr(Feature, point)
        return [feature for feature in self.all if getattr(type(feature), point) is not default]
