"""`polydomo call`: one request and its answer."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from polydomo.cli import broker_client, common
from polydomo.cli.bodies import ReplyBody, encode, encode_own, read_argument
from polydomo.core.gather import unpack
from polydomo.core.names import printable
from polydomo.errors import Timeout
from polydomo.sdk import Client, gather_codec
from polydomo.sdk.options import is_single, target_frame
from polydomo.server.units import parse_duration
from polydomo.wire.frames import join, split

CODECS = ("json", "msgpack", "cbor", "raw")


def call(
    service: Annotated[
        str,
        typer.Argument(
            metavar="SERVICE",
            help="Its name; 'polydomo services' lists what is offered.",
            autocompletion=broker_client.complete_service,
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
    target: Annotated[
        str | None,
        typer.Option(metavar="WHOM", help="nfp:// only: any, all, or workers' names with commas between."),
    ] = None,
    resource: Annotated[
        str | None, typer.Option(metavar="NAME", help="nfp:// only: the worker that has it.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option(min=-9, max=9, help="nfp:// only: higher ones first.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="nfp:// only: one execution for all calls with it.")
    ] = None,
    delay: Annotated[
        str | None, typer.Option(metavar="TIME", help="nfp:// only: not to be run before.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help="nfp:// only: nobody wants it after.")
    ] = None,
    codec: Annotated[str, typer.Option(metavar="CODEC", help=f"{', '.join(CODECS)}.")] = "json",
    raw: Annotated[
        bool, typer.Option("--raw", help="Bytes as they are, there and back; on a terminal, too.")
    ] = False,
    as_json: common.Json = False,
) -> None:
    """Call a service and print its answer.

    Examples: call echo hello; call resize @photo.jpg --raw > small.jpg; call count 5 --stream;
    call facts '{}' -u nfp://127.0.0.1:5555 --target all.
    """
    if body is not None and frames:
        raise typer.BadParameter("give a BODY or --frame, not both")
    if codec not in CODECS:
        raise typer.BadParameter(f"{codec!r} is none of {', '.join(CODECS)}", param_hint="--codec")
    used = "raw" if raw else codec
    typed = [read_argument(text) for text in frames or [body or ""]]
    sent = [encode_own(data, used) if _is_own(service) else encode(data, used) for data in typed]
    request = CallRequest(service, sent, used, seconds(timeout))
    request.printing = "raw" if raw and not as_json else "json" if as_json else "text"
    given = {
        "target": names(target),
        "resource": names(resource),
        "priority": priority,
        "key": key,
        "delay": None if delay is None else seconds(delay, "--delay"),
        "deadline": None if deadline is None else seconds(deadline, "--deadline"),
    }
    request.options = {name: value for name, value in given.items() if value is not None}
    asyncio.run(request.run(url, stream=stream, wait=wait))


def seconds(text: str, flag: str = "--timeout") -> float | None:
    """A `--timeout`; `forever` is None."""
    try:
        found = parse_duration(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r}: write 10s, 250ms, 5m or forever", param_hint=flag) from None
    return None if found == float("inf") else found


def names(text: str | None) -> str | list[str] | None:
    """One name, or several with commas between them."""
    return text.split(",") if text is not None and "," in text else text


def _is_own(service: str) -> bool:
    """The broker's own services are always there, and read text as it is typed."""
    return service.startswith("mmi.")


class CallRequest:
    """One request on its way."""

    def __init__(self, service: str, frames: list[bytes], codec: str, timeout: float | None) -> None:
        self.service = service
        self.frames = frames
        self.codec = codec
        self.timeout = timeout
        self.printing = "text"
        self.options: dict[str, Any] = {}

    async def run(self, url: str, *, stream: bool, wait: bool) -> None:
        """Ask, and print what comes. A service nobody offers is told at once, unless one waits for it."""
        async with broker_client.connect(url, timeout=self.timeout) as client:
            if not wait:
                await self._check(client, url)
            partial = self._partial if stream else None
            try:
                body = await client.exchange(self.service, join(self.frames), partial, **self.options)
            except ValueError as error:
                raise typer.BadParameter(str(error)) from None
            except Timeout as error:
                hint = f"give it more time with --timeout, or look with 'polydomo jobs ls -s {self.service}'"
                raise Timeout(error.message, hint=hint) from None
            if self._asks_several(client):
                self._print_several(body)
            else:
                self._print(split(body))

    def _asks_several(self, client: Client) -> bool:
        if client.url.dialect != "nfp":
            return False
        target = target_frame(self.options.get("target"), self.options.get("resource"))
        return not is_single(self.service.encode(), target)

    def _print_several(self, body: bytes) -> None:
        """Each worker's answer in one JSON object; the command fails if one of them did."""
        found: dict[str, Any] = {}
        failed = False
        for piece in unpack(body):
            name = printable(piece.name)
            if piece.reason:
                failed = True
                found[name] = {"failed": True, "error": gather_codec.failure(piece, self.service).message}
            else:
                found[name] = ReplyBody(split(piece.body or b""), self.codec).value()
        common.print_json(found, lines=self.printing != "text")
        if failed:
            raise typer.Exit(common.FAILED)

    async def _check(self, client: Client, url: str) -> None:
        if not _is_own(self.service) and not await client.offered(self.service):
            raise broker_client.unknown_service(
                self.service, await broker_client.query_with(client, url, "services")
            )

    def _partial(self, body: bytes) -> None:
        self._print(split(body), "dim")

    def _print(self, frames: list[bytes], style: str = "") -> None:
        answer = ReplyBody(frames, self.codec)
        if self.printing == "raw":
            answer.write_raw()
        elif self.printing == "json":
            answer.print_json()
        else:
            answer.print(style)
