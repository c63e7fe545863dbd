"""`polydomo call`: one request and its answer."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from polydomo.cli import common, remote
from polydomo.cli.bodies import Answer, encode, encode_own, read_argument
from polydomo.errors import Timeout
from polydomo.runtime.units import parse_duration
from polydomo.sdk import Client
from polydomo.wire.frames import join, split

CODECS = ("json", "msgpack", "cbor", "raw")


def call(
    service: Annotated[
        str,
        typer.Argument(
            metavar="SERVICE",
            help="Its name; 'polydomo services' lists what is offered.",
            autocompletion=remote.complete_service,
            show_default=False,
        ),
    ],
    body: Annotated[
        str | None,
        typer.Argument(
            metavar="BODY", help="Text or JSON; @FILE; - for stdin. None: empty.", show_default=False
        ),
    ] = None,
    frames: Annotated[
        list[str] | None,
        typer.Option("--frame", "-f", metavar="BODY", help="A body of several frames: one of them."),
    ] = None,
    url: common.Url = common.DEFAULT_URL,
    timeout: Annotated[
        str, typer.Option("--timeout", "-t", metavar="TIME", help="For the whole call.")
    ] = "30s",
    stream: Annotated[bool, typer.Option("--stream", help="Show partial answers as they come.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Queue even if nobody offers the service now.")
    ] = False,
    codec: Annotated[str, typer.Option(metavar="CODEC", help=f"{', '.join(CODECS)}.")] = "json",
    raw: Annotated[bool, typer.Option("--raw", help="Bytes as they are, there and back.")] = False,
    as_json: common.Json = False,
) -> None:
    """Call a service and print its answer.

    Examples: call echo hello; call resize @photo.jpg --raw > small.jpg; call count 5 --stream.
    """
    if body is not None and frames:
        raise typer.BadParameter("give a BODY or --frame, not both")
    if codec not in CODECS:
        raise typer.BadParameter(f"{codec!r} is none of {', '.join(CODECS)}", param_hint="--codec")
    used = "raw" if raw else codec
    given = [read_argument(text) for text in frames or [body or ""]]
    sent = [encode_own(data, used) if _is_own(service) else encode(data, used) for data in given]
    request = Request(service, sent, used, seconds(timeout))
    request.printing = "raw" if raw and not as_json else "json" if as_json else "text"
    asyncio.run(request.run(url, stream=stream, wait=wait))


def seconds(text: str) -> float | None:
    """A `--timeout`; `forever` is None."""
    try:
        found = parse_duration(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r}: write 10s, 250ms, 5m or forever", param_hint="--timeout"
        ) from None
    return None if found == float("inf") else found


def _is_own(service: str) -> bool:
    """The broker's own services are always there, and read text as it is typed."""
    return service.startswith("mmi.")


class Request:
    """One request on its way."""

    def __init__(self, service: str, frames: list[bytes], codec: str, timeout: float | None) -> None:
        self.service = service
        self.frames = frames
        self.codec = codec
        self.timeout = timeout
        self.printing = "text"

    async def run(self, url: str, *, stream: bool, wait: bool) -> None:
        """Ask, and print what comes. A service nobody offers is told at once, unless one waits for it."""
        async with remote.connect(url, timeout=self.timeout) as client:
            if not wait:
                await self._check(client, url)
            partial = self._partial if stream else None
            try:
                body = await client.exchange(self.service, join(self.frames), partial)
            except Timeout as error:
                hint = f"give it more time with --timeout, or look with 'polydomo jobs ls -s {self.service}'"
                raise Timeout(error.message, hint=hint) from None
            self._print(split(body))

    async def _check(self, client: Client, url: str) -> None:
        if not _is_own(self.service) and not await client.offered(self.service):
            raise remote.unknown_service(self.service, await remote.fetch(client, url, "services"))

    def _partial(self, body: bytes) -> None:
        self._print(split(body), "dim")

    def _print(self, frames: list[bytes], style: str = "") -> None:
        answer = Answer(frames, self.codec)
        if self.printing == "raw":
            answer.write_raw()
        elif self.printing == "json":
            answer.print_json()
        else:
            answer.print(style)
