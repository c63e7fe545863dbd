"""Is it well-formed CBOR? Asked of bytes that nobody here wants to decode (RFC 8949 appendix C).

A decoder would make objects of it, with tags that compute; this only walks over it, without recursion.
"""

from __future__ import annotations

from typing import Final

# Nested deeper than this is refused: whoever decodes it would have to recurse.
DEPTH: Final = 512

# So many items are looked at, a fraction of a second: the rest of a larger one is its reader's matter.
ITEMS: Final = 200_000

# Items to come where no length says it: any number; in maps an even one, and that is so now or not.
ENDLESS: Final = -1
EVEN: Final = -2
ODD: Final = -3


def well_formed(data: bytes) -> bool:
    """One item and nothing behind it."""
    pos, size = 0, len(data)
    open_: list[int] = []  # items to come at each level; below 0: until a break
    texts: list[int] = []  # levels that are strings in pieces, by their major type; 0: none
    items = 0
    while True:
        if pos >= size:
            return False
        first = data[pos]
        pos += 1
        items += 1
        if items > ITEMS:
            return True
        major, info = first >> 5, first & 31
        if first == 0xFF:  # break: ends what has no length
            if not open_ or open_[-1] not in (ENDLESS, EVEN):
                return False
            open_.pop()
            texts.pop()
        else:
            if texts and texts[-1] and (major != texts[-1] or info == 31):
                return False  # a string's pieces are strings of the same kind, each with a length
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
                    if len(open_) >= DEPTH:
                        return False
                    open_.append(todo)
                    texts.append(major if major in (2, 3) else 0)
                    continue
        # An item has ended, and with it perhaps those it is in.
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
