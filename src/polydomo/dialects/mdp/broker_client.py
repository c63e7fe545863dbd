"""MDP clients on the broker's side."""

from __future__ import annotations

from polydomo.core.model import Job
from polydomo.dialects.client_base import ClientBase
from polydomo.dialects.mdp.messages import ClientForm
from polydomo.dialects.session import Session
from polydomo.wire.frames import EMPTY_BODY, frame


class MdpClient(ClientBase):
    """A client that speaks one form of MDP."""

    def __init__(self, session: Session, form: ClientForm, resumed: bool = False) -> None:
        super().__init__(session, form.name, resumed)
        self.core.form = form.variant
        self.form = form
        self.session = session
        self.last_service = b""  # of the last request
        self._head_service = b""  # service for which the reply heads are prepared
        self._final_head = b""
        self._partial_head = b""

    def expect_request(self, service: bytes) -> None:
        """Expect the next request to be for this service too. A body follows the head, so every frame has MORE."""
        self.last_service = service
        head = self.form.request_head + frame(service, True) if len(service) < 256 else b""
        self.link.expect(self.session, head)

    def partial(self, job: Job, body: bytes) -> None:
        if self.form.partial_head is not None:
            self._prepare_heads(job.requested_service)
            self.link.answer(self._partial_head + (body or EMPTY_BODY))

    def final(self, job: Job, body: bytes) -> None:
        service = job.requested_service
        if service is not self._head_service:
            self._prepare_heads(service)
        self.link.answer(self._final_head + (body or EMPTY_BODY))

    def _prepare_heads(self, service: bytes) -> None:
        form = self.form
        tail = frame(service, True) if form.names_service else b""
        self._head_service = service
        self._final_head = form.final_head + tail
        if form.partial_head is not None:
            self._partial_head = form.partial_head + tail
