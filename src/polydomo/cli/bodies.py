"""Request and reply bodies on the command line.

Requests: with a codec (JSON by default), an argument that is valid JSON is that value, and any other text is a string.
Binary data, everything with `--raw`, and requests to the broker's own services are sent unchanged. Replies: the same in
reverse; a reply that the codec cannot decode is shown as text, or in hex. A string is written unchanged to a pipe or a
file. On a terminal its control characters are made visible, unless `--raw` is given.
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

# Bytes of a binary reply that are printed in hex.
HEX_SHOWN = 256
BLANKS = "\n\r\t"


def read_argument(text: str) -> bytes:
    """Return the bytes of an argument: `@file`, `-` for stdin, or the text itself."""
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
    """Encode one frame of a request."""
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
    """Encode one frame for the broker's own services, which take plain names and JSON objects."""
    return data if codec == "raw" else data.removesuffix(b"\n")


class ReplyBody:
    """A reply, decoded with the codec where possible."""

    def __init__(self, frames: list[bytes], codec: str) -> None:
        self.frames = frames
        self.codec = codec

    def write_raw(self) -> None:
        """Write the bytes of all frames and nothing else, except for a final newline on a terminal."""
        data = b"".join(self.frames)
        if data and sys.stdout.isatty() and not data.endswith(b"\n"):
            data += b"\n"
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def value(self) -> Any:
        """Return a value for JSON. Binary data is `{"hex": …}`, several frames are a list."""
        values = [self._readable(frame) for frame in self.frames]
        return values[0] if len(values) == 1 else values

    def print(self, style: str = "") -> None:
        """Print for people: strings as they are, values as JSON, with colours on a terminal."""
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
            if self.codec != "raw" and frame:
                return codecs.find(self.codec).decode(frame)
        except Exception:  # codecs raise various errors for bytes they cannot decode
            pass
        return _text_or_hex(frame)


def _text_or_hex(frame: bytes) -> Any:
    try:
        text = frame.decode()
    except UnicodeDecodeError:
        return {"hex": frame.hex()}
    return text if all(letter.isprintable() or letter in BLANKS for letter in text) else {"hex": frame.hex()}
