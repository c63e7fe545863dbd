"""MDP's commands and its forms, as tables.

A form is recognised by the header (`MDPC02`, `MDPW01`, ...), an empty frame before it (sent by REQ sockets and by
DEALERs that imitate them), and for clients the command byte after it. Each peer is replied to in its own form.

| form      | before header | client REQUEST | to the client         | service frame | worker commands       |
| --------- | ------------- | -------------- | --------------------- | ------------- | --------------------- |
| 0.2       | nothing       | 01             | PARTIAL 02, FINAL 03  | yes           | 01 to 06 as in RFC 18 |
| 0.2 (REQ) | empty frame   | 01             | PARTIAL 02, FINAL 03  | yes           | as 0.2                |
| majortomo | empty frame   | 02             | PARTIAL 03, FINAL 04  | no            | as 0.2                |
| 0.1       | empty frame   | none           | the reply, no command | yes           | as in RFC 7           |

RFC 7's worker commands: READY 01, REQUEST 02, REPLY 03, HEARTBEAT 04, DISCONNECT 05.
"""

from typing import Final

from polydomo.wire.frames import frame, head

CLIENT_02: Final = b"MDPC02"
WORKER_02: Final = b"MDPW02"
CLIENT_01: Final = b"MDPC01"
WORKER_01: Final = b"MDPW01"
HEADERS: Final = (CLIENT_02, WORKER_02, CLIENT_01, WORKER_01)

# Frame header of a token: the core's tokens all have this length, so it is part of prepared heads.
TOKEN_FRAME: Final = b"\x01\x08"


class ClientForm:
    """Commands and prepared heads of one form of client. Heads are wire bytes that end before the service frame;
    `start` is that of all messages. Without a command there is no frame for it."""

    def __init__(
        self,
        name: str,
        start: bytes,
        request: bytes,
        partial: bytes,
        final: bytes,
        names_service: bool,
        variant: str = "",
    ) -> None:
        self.name = name
        self.variant = variant  # distinguishes forms of the same name, in records
        self.partial = partial
        self.final = final
        self.request_head = start + (frame(request, True) if request else b"")
        self.final_head = start + (frame(final, True) if final else b"")
        # None: this form has no partial replies.
        self.partial_head = start + frame(partial, True) if partial else None
        self.names_service = names_service


class WorkerForm:
    """Commands and prepared messages of one form of worker. `start` is that of all messages."""

    def __init__(
        self,
        name: str,
        start: bytes,
        partial: bytes | None,
        final: bytes,
        heartbeat: bytes,
        disconnect: bytes,
    ) -> None:
        self.name = name
        self.ready = b"\x01"
        self.request = b"\x02"
        self.partial = partial
        self.final = final
        self.heartbeat = heartbeat
        self.disconnect = disconnect
        self.ready_head = start + frame(self.ready, True)
        self.request_head = start + frame(self.request, True)
        self.final_head = start + frame(final, True)
        self.partial_head = start + frame(partial, True) if partial else None
        self.heartbeat_message = start + frame(heartbeat)
        self.disconnect_message = start + frame(disconnect)
        self.disconnect_head = start + frame(disconnect, True)  # of our own SDK's, with a reason


C_02: Final = ClientForm("mdp/0.2", head(CLIENT_02), b"\x01", b"\x02", b"\x03", True)
C_02_REQ: Final = ClientForm("mdp/0.2", head(b"", CLIENT_02), b"\x01", b"\x02", b"\x03", True, "req")
C_TOMO: Final = ClientForm("mdp/majortomo", head(b"", CLIENT_02), b"\x02", b"\x03", b"\x04", False)
C_01: Final = ClientForm("mdp/0.1", head(b"", CLIENT_01), b"", b"", b"", True)
CLIENT_FORMS: Final = (C_02, C_02_REQ, C_TOMO, C_01)

W_02: Final = WorkerForm("mdp/0.2", head(WORKER_02), b"\x03", b"\x04", b"\x05", b"\x06")
W_TOMO: Final = WorkerForm("mdp/majortomo", head(b"", WORKER_02), b"\x03", b"\x04", b"\x05", b"\x06")
W_01: Final = WorkerForm("mdp/0.1", head(b"", WORKER_01), None, b"\x03", b"\x04", b"\x05")
