"""The errors of this package. Each has a stable code for programs and a hint for the user.

The code is part of the interface: it is used in failure answers, in `--json` output and in logs.
"""

from typing import ClassVar

from polydomo.redaction import redact


class PolydomoError(Exception):
    """Base class of all errors that this package raises."""

    code: ClassVar[str] = "error"
    hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.advice = self.hint if hint is None else hint

    def __str__(self) -> str:
        return f"{self.message} ({self.advice})" if self.advice else self.message


class ProtocolError(PolydomoError):
    """A peer sent bytes that its protocol does not allow."""

    code = "protocol"


class ConfigError(PolydomoError):
    """The configuration is invalid. Secrets are removed from the message."""

    code = "config"
    hint = "run 'polydomo config check' for the whole list"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(redact(message), hint=None if hint is None else redact(hint))


class Unreachable(PolydomoError, ConnectionError):
    """No broker answered at any of the given endpoints. Also a `ConnectionError`."""

    code = "unreachable"
    hint = "is the broker running? start one with 'polydomo dev'"


class Timeout(PolydomoError, TimeoutError):
    """No answer arrived in time. Also a `TimeoutError`."""

    code = "timeout"
    hint = "give it more time with timeout=, or look at the service with 'polydomo services ls'"


class UnknownService(PolydomoError):
    """No worker offers the service."""

    code = "unknown-service"
    hint = "'polydomo services ls' lists what is offered"


class Refused(PolydomoError):
    """The broker did not accept the job: a limit or a full queue, or the broker is stopping."""

    code = "refused"


class Denied(Refused):
    """No role of the caller or the worker grants this. Nothing was run."""

    code = "denied"
    hint = "the broker's operator can grant it: 'polydomo roles check' says what is missing"


class NameTaken(PolydomoError):
    """Another worker has the name, and the worker stops in this case (`name_taken="stop"`)."""

    code = "name-taken"
    hint = "give each worker a name of its own, or none"


class JobFailed(PolydomoError):
    """The job was accepted but has no result; `reason` is one of the core's failure reasons."""

    code = "failed"

    def __init__(self, message: str, *, reason: str = "failed", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class WorkerError(JobFailed):
    """The worker's code raised an exception of the type `kind`; `traceback` is its text, if sent."""

    code = "worker-error"

    def __init__(self, message: str, *, kind: str = "Exception", traceback: str = "") -> None:
        super().__init__(message, reason="worker-error")
        self.kind = kind
        self.traceback = traceback


def encodable(text: str) -> str:
    """Return text that can be encoded: lone surrogates, as in file names that are no UTF-8, are escaped."""
    return text.encode("utf-8", "backslashreplace").decode()
