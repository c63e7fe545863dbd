"""The part that the broker's clients of all ZeroMQ dialects share: failures, flow control, disconnects."""

from __future__ import annotations

from polydomo.core.failure import Failure
from polydomo.core.model import Client, ClientPort, Job
from polydomo.dialects import native_failure
from polydomo.dialects.session import PeerConnection, Session


class ClientBase(ClientPort):
    """A client on a connection. The dialect adds the format of its replies, and of failures if it has one. `resumed`:
    the client may have jobs from before the broker's restart."""

    def __init__(self, session: Session, dialect: str, resumed: bool = False) -> None:
        self._resumed = resumed
        self.broker = session.broker
        self.link = session.link
        link = session.link
        self.core: Client = session.broker.join_client(link.identity, dialect, self, link.principal)

    def resumes(self) -> bool:
        return self._resumed

    def failed(self, job: Job, failure: Failure) -> None:
        """Reply to a failed job in a protocol without failures: our own SDK gets the failure, other clients the
        worker's body if there is one."""
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
        """Handle the end of the connection. Return True if the client's jobs are kept for its grace period."""
        if self.link.named and self.core.jobs and not self.core.gone:
            self.broker.client_disconnected(self.core)
            return True
        self.leave()
        return False

    def reattach(self, link: PeerConnection) -> None:
        """Continue on the client's new connection."""
        self.link = link
        self.broker.client_reconnected(self.core)

    def leave(self) -> None:
        """Remove the client from the broker for good."""
        if not self.core.gone:
            self.broker.client_gone(self.core)
