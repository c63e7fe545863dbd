"""What the clients of all dialects have in common: how they are told of failures, held back, lost and found again."""

from __future__ import annotations

from polydomo.core.client import Client
from polydomo.core.job import Failure, Job
from polydomo.core.ports import ClientPort
from polydomo.dialects import native_failure
from polydomo.dialects.session import PeerConnection, Session


class ClientBase(ClientPort):
    """A client on a connection. A dialect adds how its answers look, and its own words for failure if it has some."""

    def __init__(self, session: Session, dialect: str) -> None:
        self.broker = session.broker
        self.link = session.link
        self.core: Client = session.broker.join_client(session.link.identity, dialect, self)

    def failed(self, job: Job, failure: Failure) -> None:
        """Where a protocol has no word for it: our own SDK is told, others get the worker's body or silence."""
        if self.link.native:
            self.final(job, native_failure.to_client(failure))
        elif failure.body is not None:
            self.final(job, failure.body)

    def hold(self) -> None:
        self.link.pause()

    def release(self) -> None:
        self.link.resume()

    def forget(self) -> None:
        self.link.forget()

    def lost(self) -> bool:
        """Its connection is gone; True if its jobs are worth keeping for a while."""
        if self.link.named and self.core.jobs and not self.core.gone:
            self.broker.client_away(self.core)
            return True
        self.leave()
        return False

    def reattach(self, link: PeerConnection) -> None:
        """Back in time, on a new connection."""
        self.link = link
        self.broker.client_back(self.core)

    def leave(self) -> None:
        """Gone for good."""
        if not self.core.gone:
            self.broker.client_gone(self.core)
