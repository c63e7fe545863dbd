"""DCP clients on the broker's side."""

from __future__ import annotations

from polydomo.core.model import Job
from polydomo.dialects.client_base import ClientBase
from polydomo.dialects.dcp.messages import DIALECT, Width, close_metadata
from polydomo.dialects.session import Session
from polydomo.wire.frames import DELIMITER, frame


class DcpClient(ClientBase):
    """A peer that has sent requests. DCP has one reply per request, so partial ones are dropped."""

    def __init__(self, session: Session, width: Width, resumed: bool = False) -> None:
        super().__init__(session, DIALECT, resumed)
        self.core.form = width.variant
        self.width = width
        self._address = frame(session.link.identity, True)

    def final(self, job: Job, body: bytes) -> None:
        head = self.width.reply_head + self._address + DELIMITER
        self.link.answer(head + job.envelope + close_metadata(body))
