"""Bodies on the command line: what a person types becomes a request, and an answer becomes something to read.

In: with a codec (JSON unless told otherwise), text that reads as JSON is that value, and any other text is a
string; bytes that are no text, everything with `--raw`, and what the broker itself is asked are sent as they
are. Out: the same the other way round; an answer that the codec cannot read is shown as the text it is, or in
hex. A string goes into a pipe or a file exactly as it is. On a terminal its control characters are shown, unless
`--raw` asks for the bytes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
from rich.highlighter import JSONHighlighter
from rich.text import Text

from polydomo.cli import common
from polydomo.errors import ConfigError
from polydomo.safe_text import safe, safe_json
from polydomo.sdk import codecs

# A terminal is no place for megabytes in hex.
HEX_SHOWN = 256
BLANKS = "\n\r\t"


def read_argument(text: str) -> bytes:
    """`@file`, `-` for stdin, or the text itself."""
    if text == "-":
        return sys.stdin.buffer.read()
    if text.startswith("@"):
        try:
            return Path(text[1:]).read_bytes()
        except OSError as error:
            hint = "a body that begins with @ names a file; to send an @ itself, use '-' and stdin"
            raise ConfigError(f"cannot read {text[1:]}: {error.strerror}", hint=hint) from error
    return text.encode()


def encode(data: bytes, codec: str) -> bytes:
    """One frame of the request."""
    if codec == "raw" or not data:
        return data
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        value = text.removesuffix("\n")
    return codecs.find(codec).encode(value)


def encode_own(data: bytes, codec: str) -> bytes:
    """The same for the broker's own services, which take bare names and JSON objects."""
    return data if codec == "raw" else data.removesuffix(b"\n")


class ReplyBody:
    """What came back, however it can be read."""

    def __init__(self, frames: list[bytes], codec: str) -> None:
        self.frames = frames
        self.codec = codec

    def write_raw(self) -> None:
        """The bytes and nothing else; several frames one after the other. On a terminal the line is ended, so
        that the next prompt begins on one of its own."""
        data = b"".join(self.frames)
        if data and sys.stdout.isatty() and not data.endswith(b"\n"):
            data += b"\n"
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def value(self) -> Any:
        """For JSON. What is no text is shown as `{"hex": …}`; several frames are a list."""
        values = [self._readable(frame) for frame in self.frames]
        return values[0] if len(values) == 1 else values

    def print_json(self) -> None:
        """One line of JSON."""
        common.print_json(self.value(), lines=True)

    def print(self, style: str = "") -> None:
        """For people: strings as they are, values as JSON, in colours on a terminal."""
        for number, frame in enumerate(self.frames):
            prefix = Text(f"[{number}] ", "dim") if len(self.frames) > 1 else Text()
            value = self._readable(frame)
            if isinstance(value, str) and not common.out.is_terminal:
                print(prefix.plain + value, flush=True)
            elif isinstance(value, str):
                common.out.print(prefix + Text(safe(value), style), soft_wrap=True)
            elif isinstance(value, dict) and value.keys() == {"hex"}:
                cut = value["hex"][: HEX_SHOWN * 2]
                more = "…" if len(frame) > HEX_SHOWN else ""
                common.out.print(prefix + Text(f"{len(frame)} bytes: {cut}{more}", "yellow"), soft_wrap=True)
            else:
                data = msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2)
                common.out.print(prefix + JSONHighlighter()(safe_json(data.decode())), soft_wrap=True)

    def _readable(self, frame: bytes) -> Any:
        try:
            return (
                codecs.find(self.codec).decode(frame)
                if self.codec != "raw" and frame
                else _text_or_hex(frame)
            )
        except Exception:  # whatever a codec says of bytes it cannot read
            return _text_or_hex(frame)


def _text_or_hex(frame: bytes) -> Any:
    try:
        text = frame.decode()
    except UnicodeDecodeError:
        return {"hex": frame.hex()}
    return text if all(letter.isprintable() or letter in BLANKS for letter in text) else {"hex": frame.hex()}
