"""`polydomo call`: send a request and print the reply."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from polydomo.cli import broker_client, common
from polydomo.cli.bodies import ReplyBody, encode, encode_own, read_argument
from polydomo.core.names import printable
from polydomo.core.pieces import unpack
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
            help="The service's name; 'polydomo services' lists them.",
            autocompletion=broker_client.complete_service,
            show_default=False,
        ),
    ],
    body: Annotated[
        str | None,
        typer.Argument(
            metavar="BODY", help="Text or JSON; @FILE; - for stdin. Default: empty.", show_default=False
        ),
    ] = None,
    frames: Annotated[
        list[str] | None,
        typer.Option(
            "--frame", "-f", metavar="BODY", help="One frame of a body of several frames; repeatable."
        ),
    ] = None,
    url: common.Url = common.DEFAULT_URL,
    timeout: Annotated[
        str, typer.Option("--timeout", "-t", metavar="TIME", help="Time limit of the call.")
    ] = "30s",
    stream: Annotated[bool, typer.Option("--stream", help="Print partial replies as they arrive.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Queue the request even if no worker offers the service.")
    ] = False,
    target: Annotated[
        str | None,
        typer.Option(metavar="WHOM", help="nfp:// only: any, all, or a comma-separated list of workers."),
    ] = None,
    resource: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="nfp:// only: send to the worker that has this resource."),
    ] = None,
    priority: Annotated[
        int | None, typer.Option(min=-9, max=9, help="nfp:// only: higher priorities run first.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="nfp:// only: one execution for all calls with this key."),
    ] = None,
    delay: Annotated[
        str | None, typer.Option(metavar="TIME", help="nfp:// only: do not run before this time has passed.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help="nfp:// only: discard the job after this time.")
    ] = None,
    codec: Annotated[str, typer.Option(metavar="CODEC", help=f"{', '.join(CODECS)}.")] = "json",
    raw: Annotated[
        bool, typer.Option("--raw", help="Send and print bytes unchanged, also on a terminal.")
    ] = False,
    as_json: common.Json = False,
) -> None:
    """Call a service and print its reply.

    Examples: call echo hello; call resize @photo.jpg --raw > small.jpg; call count 5 --stream;
    call facts '{}' -u nfp://127.0.0.1:5555 --target all.
    """
    if body is not None and frames:
        raise typer.BadParameter("give a BODY or --frame, not both")
    common.check_choice(codec, CODECS, "--codec")
    codec = "raw" if raw else codec
    encode_frame = encode_own if _is_own(service) else encode
    encoded = [encode_frame(read_argument(text), codec) for text in frames or [body or ""]]
    printing = "json" if as_json else "raw" if raw else "text"
    options = {
        "target": names(target),
        "resource": names(resource),
        "priority": priority,
        "key": key,
        "delay": None if delay is None else seconds(delay, "--delay"),
        "deadline": None if deadline is None else seconds(deadline, "--deadline"),
    }
    given = {name: value for name, value in options.items() if value is not None}
    request = CallRequest(service, encoded, codec, seconds(timeout), printing, given)
    asyncio.run(request.run(url, stream=stream, wait=wait))


def seconds(text: str, flag: str = "--timeout") -> float | None:
    """Parse a duration; `forever` is None."""
    try:
        found = parse_duration(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r}: write 10s, 250ms, 5m or forever", param_hint=flag) from None
    return None if found == float("inf") else found


def names(text: str | None) -> str | list[str] | None:
    """Split a comma-separated list; a single name stays a string."""
    return text.split(",") if text is not None and "," in text else text


def _is_own(service: str) -> bool:
    """Return whether a service is one of the broker's own, which always exist and read plain text."""
    return service.startswith("mmi.")


@dataclass
class CallRequest:
    """One request and how its reply is printed."""

    service: str
    frames: list[bytes]
    codec: str
    timeout: float | None
    printing: str
    options: dict[str, Any]

    async def run(self, url: str, *, stream: bool, wait: bool) -> None:
        """Send the request and print the reply. Without `wait`, a service without workers is an error."""
        async with broker_client.connect(url, timeout=self.timeout) as client:
            if not wait:
                await self._check(client, url)
            partial = self._partial if stream else None
            try:
                body = await client.exchange(self.service, join(self.frames), partial, **self.options)
            except ValueError as error:
                raise typer.BadParameter(str(error)) from None
            except Timeout as error:
                hint = f"raise --timeout, or look at 'polydomo jobs ls -s {self.service}'"
                raise Timeout(error.message, hint=hint) from None
            if self._has_several_targets(client):
                self._print_several(body)
            else:
                self._print(split(body))

    def _has_several_targets(self, client: Client) -> bool:
        if client.url.dialect != "nfp":
            return False
        target = target_frame(self.options.get("target"), self.options.get("resource"))
        return not is_single(self.service.encode(), target)

    def _print_several(self, body: bytes) -> None:
        """Print the workers' replies as one JSON object; exit with an error if one of them failed."""
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
            rows = await broker_client.call_task(client, url, "show_services")
            raise broker_client.unknown_service(self.service, rows)

    def _partial(self, body: bytes) -> None:
        self._print(split(body), "dim")

    def _print(self, frames: list[bytes], style: str = "") -> None:
        reply = ReplyBody(frames, self.codec)
        if self.printing == "raw":
            reply.write_raw()
        elif self.printing == "json":
            common.print_json(reply.value(), lines=True)
        else:
            reply.print(style)
