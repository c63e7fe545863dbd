"""What happens to a job, as Server-Sent Events.

Each has a name and data:

- `accepted`: the job as a JSON document; only where it was submitted by the same request
- `assigned`, `taken`: `{"worker": …}`
- `partial`, `stream`: the body
- `event`: `{"worker": …, "kind": …, "body"|"text"|"base64": …}`
- `gathered`: `{"worker": …, "ok": …, …}`, of a job for several workers
- `result`: the body, or for several workers the JSON list; or `failed`: the problem document. These are the last, and
  their id is `end`
- `cut`, also the last: something is missing from here on; ask again

A body that is one frame of text stands there as it is, in as many `data:` lines as it has. What would not come out
again as it was (other bytes, carriage returns, several frames) is `{"polydomo:frames": [base64, …]}`.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final

import msgspec

from polydomo.core.gather import unpack
from polydomo.core.names import printable
from polydomo.web import job_events
from polydomo.web.api.body_json import shown
from polydomo.web.api.problems import problem_of
from polydomo.web.api.responses import piece_shown
from polydomo.web.job_events import JobEvent
from polydomo.wire.frames import frame, split

# The id of the last one. A browser that comes again with it, as they do when a stream ends, is told to stop.
END: Final = "end"

# Nothing has happened for a while.
QUIET: Final = b":\n\n"

_FRAMES: Final = '{"polydomo:frames":'


def told(happening: JobEvent) -> bytes:
    """One of them."""
    kind = happening.kind
    worker = printable(happening.worker)
    if kind in (job_events.PARTIAL, job_events.STREAM):
        data = text_of(happening.body)
    elif kind == job_events.RESULT:
        data = _result(happening)
    elif kind == job_events.FAILED and happening.failure is not None:
        data = _json(problem_of(happening.failure).document())
    elif kind == job_events.EVENT:
        data = _json({"worker": worker, "kind": happening.word, **shown(frame(happening.body))})
    elif kind == job_events.GATHERED and happening.failure is not None:
        data = _json({"worker": worker, "ok": False, "problem": problem_of(happening.failure).document()})
    elif kind == job_events.GATHERED:
        data = _json({"worker": worker, "ok": True, **shown(happening.body)})
    else:
        data = _json({"worker": worker} if worker else {})
    number = str(happening.number) if happening.number else ""
    return event(kind, data, END if kind in (job_events.RESULT, job_events.FAILED) else number)


def event(name: str, data: str, id: str = "") -> bytes:
    """As it is sent."""
    lines = [f"id: {id}"] if id else []
    lines.append(f"event: {name}")
    lines += [f"data: {line}" for line in data.split("\n")]
    return ("\n".join(lines) + "\n\n").encode()


def text_of(body: bytes) -> str:
    """A body as data."""
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


def _result(happening: JobEvent) -> str:
    if happening.gathered:
        return _json([piece_shown(piece) for piece in unpack(happening.body)])
    return text_of(happening.body)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
