"""Check of bytes for well-formed CBOR (RFC 8949 appendix C), without decoding them.

cbor2 is not used here: it decodes, so a body costs many times its size in objects, tags compute (bignums, regular
expressions, shared references), and well-formed items with unexpected contents of tags are rejected. This function
only walks over the item heads, without recursion.
"""

from __future__ import annotations

from typing import Final

# Deeper nesting is refused: decoders recurse.
DEPTH_MAX: Final = 512

# Number of items that are checked, in a fraction of a second; the rest of a larger body is not checked.
ITEMS_MAX: Final = 200_000

# Remaining items of an indefinite length: any number, or of a map an even number, of which an even or odd one was read.
ENDLESS: Final = -1
EVEN: Final = -2
ODD: Final = -3


def well_formed(data: bytes) -> bool:
    """Return whether the bytes are exactly one well-formed item."""
    pos, size = 0, len(data)
    open_: list[int] = []  # remaining items at each level; below 0: until a break
    texts: list[int] = []  # major type of each level that is a chunked string; otherwise 0
    items = 0
    while True:
        if pos >= size:
            return False
        first = data[pos]
        pos += 1
        items += 1
        if items > ITEMS_MAX:
            return True
        major, info = first >> 5, first & 31
        if first == 0xFF:  # break: ends an indefinite length
            if not open_ or open_[-1] not in (ENDLESS, EVEN):
                return False
            open_.pop()
            texts.pop()
        else:
            if texts and texts[-1] and (major != texts[-1] or info == 31):
                return False  # chunks are strings of the same type with a definite length
            value = info
            if 24 <= info <= 27:
                width = 1 << (info - 24)
                if pos + width > size:
                    return False
                value = int.from_bytes(data[pos : pos + width], "big")
                pos += width
            elif 28 <= info <= 30 or (info == 31 and major in (0, 1, 6)):
                return False
            if major in (2, 3) and info != 31:
                pos += value
                if pos > size:
                    return False
            elif major == 7:
                if info == 24 and value < 32:
                    return False
            elif major >= 2:
                todo = 1 if major == 6 else value * 2 if major == 5 else value
                if info == 31:
                    todo = EVEN if major == 5 else ENDLESS
                if todo:
                    if len(open_) >= DEPTH_MAX:
                        return False
                    open_.append(todo)
                    texts.append(major if major in (2, 3) else 0)
                    continue
        # An item has ended, and possibly the items that contain it.
        while open_:
            if open_[-1] < 0:
                open_[-1] = {ENDLESS: ENDLESS, EVEN: ODD, ODD: EVEN}[open_[-1]]
                break
            open_[-1] -= 1
            if open_[-1]:
                break
            open_.pop()
            texts.pop()
        if not open_:
            return pos == size
