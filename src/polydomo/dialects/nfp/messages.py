"""NFP's commands and its two forms.

The specification's command frame is one byte (`04`), norfab's is four characters (`0x04`). Both forms share the layout
of messages, all of which begin with an empty frame:

| direction                             | frames after the empty one                               |
| ------------------------------------- | -------------------------------------------------------- |
| client → broker                       | `NFPC01` command service target uuid body…               |
| broker → client                       | `NFPB01` command service uuid status body…               |
| broker → worker POST GET PUT DELETE MMI | `NFPB01` command token "" uuid body…                   |
| worker → broker RESPONSE EVENT STREAM MMI | `NFPW01` command token "" uuid status body…          |
| READY, KEEPALIVE                      | header command service                                   |
| DISCONNECT                            | header command service body (the body may be missing)    |
| OPEN                                  | header command body                                      |

A worker's EVENT is one frame, a JSON object whose `event_type` is its kind, or two: the kind and any data. An EVENT
with an empty token is not about a job, and is only published.
"""

from typing import Final

from polydomo.wire.frames import frame, head

CLIENT: Final = b"NFPC01"
WORKER: Final = b"NFPW01"
BROKER: Final = b"NFPB01"
HEADERS: Final = (CLIENT, WORKER)  # of messages to a broker

OPEN: Final = 0x00
READY: Final = 0x01
KEEPALIVE: Final = 0x02
DISCONNECT: Final = 0x03
POST: Final = 0x04
RESPONSE: Final = 0x05
GET: Final = 0x06
DELETE: Final = 0x07
EVENT: Final = 0x08
STREAM: Final = 0x09
PUT: Final = 0x10
MMI: Final = 0x11

COMMANDS: Final[dict[int, str]] = {
    OPEN: "OPEN",
    READY: "READY",
    KEEPALIVE: "KEEPALIVE",
    DISCONNECT: "DISCONNECT",
    POST: "POST",
    RESPONSE: "RESPONSE",
    GET: "GET",
    DELETE: "DELETE",
    EVENT: "EVENT",
    STREAM: "STREAM",
    PUT: "PUT",
    MMI: "MMI",
}

# NFP §Status Frames. A space and a text may follow the three digits, and are ignored.
OK: Final = b"200"
ACCEPTED: Final = b"202"
PENDING: Final = b"300"
UNKNOWN: Final = b"400"
TIMEOUT: Final = b"408"
UNEXPECTED: Final = b"417"
ERROR: Final = b"500"
# Further statuses of norfab's.
WAITING_INPUT: Final = b"102"
CREATED: Final = b"201"
NO_JOB: Final = b"404"

# Frame header of a token: the core's tokens all have this length, so it is part of prepared heads.
TOKEN_FRAME: Final = b"\x01\x08"

# The status of a result, as wire bytes.
OK_FRAME: Final = frame(OK, True)

# A job's UUID is short printable text. norfab's workers get it with the token appended.
UUID_MAX: Final = 200


class ClientCommand:
    """A client's command about a job."""

    __slots__ = ("code", "service", "target", "uuid")

    def __init__(self, code: int, service: bytes, target: bytes, uuid: bytes) -> None:
        self.code = code
        self.service = service
        self.target = target  # as it was written
        self.uuid = uuid


class Form:
    """Command frames of one form, with the most frequent heads. Heads are wire bytes up to the command, each frame with
    MORE."""

    def __init__(self, name: str, norfab: bool) -> None:
        self.name = name
        self.norfab = norfab
        self.words = {code: b"0x%02x" % code if norfab else bytes((code,)) for code in COMMANDS}
        self.to_worker_post = self.head(BROKER, POST)
        self.to_client_response = self.head(BROKER, RESPONSE)
        self.to_client_event = self.head(BROKER, EVENT)
        self.to_client_stream = self.head(BROKER, STREAM)
        self.from_worker_response = self.head(WORKER, RESPONSE) + TOKEN_FRAME

    def head(self, header: bytes, command: int) -> bytes:
        """Return the empty frame, the header and the command."""
        return head(b"", header, self.words[command])

    def short(self, header: bytes, command: int, last: bytes) -> bytes:
        """Return a whole message of four frames: OPEN, READY, KEEPALIVE."""
        return self.head(header, command) + frame(last)

    def disconnect(self, header: bytes, service: bytes, reason: bytes) -> bytes:
        """Return a whole DISCONNECT, with service and body (which norfab's workers require too)."""
        return self.head(header, DISCONNECT) + frame(service, True) + frame(reason)


SPEC: Final = Form("nfp/0.1", False)
NORFAB: Final = Form("nfp/norfab", True)

# Command frame → command and form.
READING: Final[dict[bytes, tuple[int, Form]]] = {
    word: (code, form) for form in (SPEC, NORFAB) for code, word in form.words.items()
}


def read_command(word: bytes | None) -> tuple[int, Form] | None:
    """Return the command and the form of a command frame; None if it is unknown."""
    return None if word is None else READING.get(word)


def status_of(word: bytes) -> bytes:
    """Return the three digits of a status frame; `b""` if it does not begin with them."""
    digits = word[:3]
    if len(digits) == 3 and digits.isdigit() and (len(word) == 3 or word[3:4] == b" "):
        return digits
    return b""


def is_valid_uuid(uuid: bytes) -> bool:
    if not 0 < len(uuid) <= UUID_MAX:
        return False
    try:
        return uuid.decode().isprintable()
    except UnicodeDecodeError:
        return False
