"""Names of services, workers and clients for people: bytes on the wire, text everywhere else.

A name that is printable UTF-8 is shown as it is. Any other is shown as `0x` and its bytes in hexadecimal digits, and
so is a text that would look like the name of another, as `0xcafe` does. So two names never look the same, and
`parse_name` takes what `printable` gives.
"""

from typing import Final

_HEX: Final = "0x"


def printable(name: bytes) -> str:
    """Return a name as text."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return _HEX + name.hex()
    if not text.isprintable() or (text.startswith(_HEX) and _shown_so(text) is not None):
        return _HEX + name.hex()
    return text


def parse_name(text: str) -> bytes:
    """Return the name that is shown as `text`; if none is, the text itself."""
    name = _shown_so(text) if text.startswith(_HEX) else None
    return text.encode() if name is None else name


def _shown_so(text: str) -> bytes | None:
    """Return the name that is shown in these hexadecimal digits; None if they belong to a plain text."""
    try:
        name = bytes.fromhex(text[len(_HEX) :])
    except ValueError:
        return None
    return name if printable(name) == text else None
