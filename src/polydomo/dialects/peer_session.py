"""The part that the sessions of MDP, DCP and NFP share: a connection has a client, a worker, or both."""

from __future__ import annotations

from typing import Generic, TypeVar

from polydomo.dialects.client_base import ClientBase
from polydomo.dialects.session import PeerConnection, Session, SessionContext
from polydomo.dialects.worker_base import WorkerBase

ClientT = TypeVar("ClientT", bound=ClientBase)
WorkerT = TypeVar("WorkerT", bound=WorkerBase)


class PeerSession(Session, Generic[ClientT, WorkerT]):
    """One peer. Its client may outlive the connection, its worker leaves with it."""

    def __init__(self, context: SessionContext, link: PeerConnection) -> None:
        super().__init__(context, link)
        self.client: ClientT | None = None
        self.worker: WorkerT | None = None

    def lost(self) -> bool:
        if self.worker is not None:
            self.worker.leave("connection lost")
        return self.client is not None and self.client.lost()

    def reattach(self, link: PeerConnection) -> None:
        self.link = link
        self.worker = None  # the worker left with its connection
        if self.client is not None:
            self.client.reattach(link)

    def abandon(self) -> None:
        if self.client is not None:
            self.client.leave()

    def is_worker(self) -> bool:
        return self.worker is not None and self.worker.core is not None

    def set_reading_paused(self, reading_paused: bool) -> None:
        if self.worker is not None and self.worker.core is not None:
            self.broker.set_reading_paused(self.worker.core, reading_paused)
