"""The life of a job: its states, the events that change them, and one table that says which event leads where.

A job arrives in `READY`: it is in no place yet, and what happens next is being decided. Most jobs know three steps:
they wait in a queue (`WAITING`) if no worker is idle, they are dispatched (`RUNNING`), and their worker's reply, or the
loss of their last attempt, ends them (`DONE`, `FAILED`). A job that loses its worker waits again (`QUEUE`) until its
service's retries are used up.

Between these steps a feature may *hold* a job, because something has to happen first. A held job is in no queue and
with no worker, and its state says why:

- `STORING`: it is being written to disk, or follows another job that is run in its place;
- `DELAYED`: its time has not come, or it pauses between two attempts, or its worker of before a restart may return;
- `GATHERING`: several workers do a part of it each;
- `REMEMBERING`: its result may be in the cache, or on its way there;
- `RECORDING`: it has ended, and that is being written to disk.

`RELEASE` ends every hold and leads back to `READY`. No call on the broker leaves a job there. An end is final: a job
that was `REFUSED` never began, a `WITHDRAWN` one was cancelled, a `DEAD` one is a durable job whose attempts were used
up.

Numbers, not enum members: a state is read several times per message.
"""

from __future__ import annotations

from typing import Final

WAITING: Final = 0
RUNNING: Final = 1
DONE: Final = 2
FAILED: Final = 3
STORING: Final = 4
DELAYED: Final = 5
RECORDING: Final = 6
GATHERING: Final = 7
REMEMBERING: Final = 8
REFUSED: Final = 9
WITHDRAWN: Final = 10
DEAD: Final = 11
READY: Final = 12

# The names of the states, by number. They stand in JSON answers and `--state` options.
STATES: Final = (
    "waiting",
    "running",
    "done",
    "failed",
    "storing",
    "delayed",
    "recording",
    "gathering",
    "remembering",
    "refused",
    "cancelled",
    "dead",
    "ready",
)

# States without a next one.
ENDS: Final = (DONE, FAILED, REFUSED, WITHDRAWN, DEAD)

# States in which a feature holds a job.
HELD: Final = (STORING, DELAYED, GATHERING, REMEMBERING, RECORDING)

QUEUE: Final = 0  # put (back) into a queue
DISPATCH: Final = 1  # given to a worker, or found with the worker that had it before a restart
STORE: Final = 2  # held until it is on disk, or until the job that it follows ends
DELAY: Final = 3  # held until a time
GATHER: Final = 4  # held until several workers have done their parts
REMEMBER: Final = 5  # held until the cache knows, or has got, its result
RECORD: Final = 6  # held until its end is on disk
RELEASE: Final = 7  # held no longer, taken out of its queue, or forwarded by its worker
FINISH: Final = 8  # ended with a result
FAIL: Final = 9  # ended without one
REFUSE: Final = 10  # ended before it was accepted
WITHDRAW: Final = 11  # ended because it was cancelled
BURY: Final = 12  # ended as a dead letter

EVENTS: Final = (
    "queue",
    "dispatch",
    "store",
    "delay",
    "gather",
    "remember",
    "record",
    "release",
    "finish",
    "fail",
    "refuse",
    "withdraw",
    "bury",
)

_ENDINGS: Final = {FINISH: DONE, FAIL: FAILED, REFUSE: REFUSED, WITHDRAW: WITHDRAWN, BURY: DEAD}
_HOLDS: Final = {STORE: STORING, DELAY: DELAYED, GATHER: GATHERING, REMEMBER: REMEMBERING, RECORD: RECORDING}

# The table: state → event → next state. An event that is missing cannot happen in that state.
TRANSITIONS: Final[dict[int, dict[int, int]]] = {
    READY: {QUEUE: WAITING, DISPATCH: RUNNING, **_HOLDS, **_ENDINGS},
    WAITING: {DISPATCH: RUNNING, RELEASE: READY, RECORD: RECORDING, **_ENDINGS},
    RUNNING: {
        QUEUE: WAITING,  # the attempt was lost
        RELEASE: READY,
        DELAY: DELAYED,  # the attempt was lost, and the service wants a pause
        RECORD: RECORDING,
        **_ENDINGS,
    },
    STORING: {RELEASE: READY},
    DELAYED: {RELEASE: READY},
    GATHERING: {RELEASE: READY},
    REMEMBERING: {RELEASE: READY},
    RECORDING: {RELEASE: READY},
    DONE: {},
    FAILED: {},
    REFUSED: {},
    WITHDRAWN: {},
    DEAD: {},
}

# What an impossible event leads to; no job is ever seen in it (`tests/support/invariants.py` looks).
IMPOSSIBLE: Final = -1

# The same table as tuples, for speed: `NEXT[state][event]`.
NEXT: Final[tuple[tuple[int, ...], ...]] = tuple(
    tuple(TRANSITIONS[state].get(event, IMPOSSIBLE) for event in range(len(EVENTS)))
    for state in range(len(STATES))
)

# Its columns for the events of every plain job, which save a lookup each: `QUEUED[state]` is `NEXT[state][QUEUE]`.
QUEUED: Final = tuple(row[QUEUE] for row in NEXT)
DISPATCHED: Final = tuple(row[DISPATCH] for row in NEXT)
FINISHED: Final = tuple(row[FINISH] for row in NEXT)


def draw() -> str:
    """Return the table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> ready: submit"]
    for state, events in TRANSITIONS.items():
        merged: dict[int, list[str]] = {}
        for event, after in events.items():
            merged.setdefault(after, []).append(EVENTS[event])
        lines += [
            f"    {STATES[state]} --> {STATES[after]}: {', '.join(names)}" for after, names in merged.items()
        ]
    lines += [f"    {STATES[state]} --> [*]" for state in ENDS]
    return "\n".join(lines)
