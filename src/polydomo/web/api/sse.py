"""Encoding of a job's events as Server-Sent Events.

Each event has a name and data:

- `accepted`: the job as a JSON document; only if this request submitted it
- `assigned`, `taken`: `{"worker": …}`
- `partial`, `stream`: the body
- `event`: `{"worker": …, "kind": …, "body"|"text"|"base64": …}`
- `gathered`: `{"worker": …, "ok": …, …}`, of a job for several workers
- `result`: the body, or the JSON list for several workers; or `failed`: the problem document. These are last, and their
  id is `end`
- `cut`, also last: further events are lost; request the stream again

A body that is one frame of text is copied verbatim, one `data:` line per line. Anything that would not survive that
(other bytes, carriage returns, several frames) is `{"polydomo:frames": [base64, …]}`.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final

import msgspec

from polydomo.core.names import printable
from polydomo.core.pieces import unpack
from polydomo.web import job_events
from polydomo.web.api.body_json import body_to_json
from polydomo.web.api.problems import problem_of
from polydomo.web.api.responses import outcome_to_json, piece_to_json
from polydomo.web.job_events import JobEvent
from polydomo.wire.frames import frame, split

# Id of the last event. A browser reconnects with it when the stream ends, and is told to stop.
END: Final = "end"

# A comment, sent when nothing has happened for a while.
KEEP_ALIVE: Final = b":\n\n"

_FRAMES: Final = '{"polydomo:frames":'


def encode_event(event: JobEvent) -> bytes:
    """Return an event of a job in its wire format."""
    kind = event.kind
    worker = printable(event.worker)
    if kind == job_events.RESULT and event.gathered:
        data = _json([piece_to_json(piece) for piece in unpack(event.body)])
    elif kind in (job_events.PARTIAL, job_events.STREAM, job_events.RESULT):
        data = body_text(event.body)
    elif kind == job_events.FAILED and event.failure is not None:
        data = _json(problem_of(event.failure).document())
    elif kind == job_events.EVENT:
        data = _json({"worker": worker, "kind": event.word, **body_to_json(frame(event.body))})
    elif kind == job_events.GATHERED:
        data = _json({"worker": worker, **outcome_to_json(event.body, event.failure)})
    else:
        data = _json({"worker": worker} if worker else {})
    number = str(event.number) if event.number else ""
    return format_event(kind, data, END if kind in (job_events.RESULT, job_events.FAILED) else number)


def format_event(name: str, data: str, id: str = "") -> bytes:
    """Return an event with this name, data and id in its wire format."""
    lines = [f"id: {id}"] if id else []
    lines.append(f"event: {name}")
    lines += [f"data: {line}" for line in data.split("\n")]
    return ("\n".join(lines) + "\n\n").encode()


def body_text(body: bytes) -> str:
    """Return a body as the data of an event."""
    frames = split(body)
    if len(frames) <= 1:
        try:
            text = frames[0].decode() if frames else ""
        except UnicodeDecodeError:
            pass
        else:
            if "\r" not in text and "\0" not in text and not text.startswith(_FRAMES):
                return text
    return _json({"polydomo:frames": [b64encode(part).decode() for part in frames]})


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
