"""Targets: the workers a job is addressed to, where any worker of its service will not do."""

from __future__ import annotations

from typing import Final

ALL: Final = 1  # every worker of the service that is here
NAMES: Final = 2  # these workers, here or not yet
RESOURCES: Final = 3  # the workers that have these resources now
EACH: Final = 4  # one worker of each service (only together with `everywhere`)

KINDS: Final = {ALL: "all", NAMES: "names", RESOURCES: "resources", EACH: "each"}


class Target:
    """`names` are those of workers or resources. A job with a `single` target has the worker's own answer as its
    result; any other one has a gathered result (`core.gather`), however many workers there turn out to be."""

    __slots__ = ("everywhere", "kind", "names", "single")

    def __init__(
        self, kind: int, names: list[bytes] | None = None, single: bool = False, everywhere: bool = False
    ) -> None:
        self.kind = kind
        self.names: list[bytes] = [] if names is None else list(dict.fromkeys(names))
        self.single = single and len(self.names) == 1
        self.everywhere = everywhere  # of all services, not only of the one the job names


class Assignment:
    """Where one part of a job is done."""

    __slots__ = ("resource", "service", "worker")

    def __init__(self, service: bytes, worker: bytes, resource: bytes = b"") -> None:
        self.service = service
        self.worker = worker  # empty: the holder of the resource
        self.resource = resource

    def name(self) -> bytes:
        """Return the name of its piece in a gathered result."""
        return self.worker or b"resource:" + self.resource
