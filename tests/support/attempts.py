"""Guesses of an attempt's path over HTTP."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

from tests.web.desk import Desk


def guessed_paths(path: str, count: int) -> Iterator[str]:
    """Paths of attempts near a valid one: its token with other codes, and other tokens."""
    chance = random.Random(1)
    start, _, credential = path.rpartition("/")
    token, _, code = credential.partition(".")
    yield f"{start}/{token}"
    yield f"{start}/{token}."
    yield f"{start}/{token}.{code[:-1]}"
    yield f"{start}/{token}.{code}A"
    for _ in range(count):
        near = (int(token, 16) + chance.randrange(-1, 2)) & 0xFFFFFFFF
        yield f"{start}/{near:08x}.{''.join(chance.choices(code, k=len(code)))}"


def refuse_all(desk: Desk, paths: Iterator[str]) -> None:
    """Send a forged result to each path, a hundred at a time over one connection; all must be refused."""
    with desk.raw() as connection, connection.makefile("rb") as answers:
        while some := list(islice(paths, 100)):
            connection.sendall(b"".join(desk.request("PUT", f"{path}/result", b"forged") for path in some))
            for path in some:
                assert _status_of(answers) in (404, 410), path


def _status_of(answers: Any) -> int:
    """Read a response to its end."""
    status = int(answers.readline().split()[1])
    size = 0
    while (line := answers.readline().strip()) != b"":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            size = int(value)
    answers.read(size)
    return status
