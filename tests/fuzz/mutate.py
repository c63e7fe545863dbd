"""A small mutator for long fuzz runs. The same seed gives the same inputs."""

from __future__ import annotations

import random

LONGEST = 2000
NUMBERS = [0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF, 0x100, 0xFFFF, 0x10000, 1 << 31, (1 << 62) - 1, (1 << 64) - 1]


class Mutator:
    """Generates inputs from `seeds` and `words`; `keep` adds a useful one."""

    def __init__(self, seeds: list[bytes], words: list[bytes], seed: int) -> None:
        self.pool = [*seeds, b""]
        self.words = words
        self.random = random.Random(seed)

    def next(self) -> bytes:
        dice = self.random
        data = bytearray(dice.choice(self.pool))
        for _ in range(1 + min(dice.getrandbits(3), dice.getrandbits(3))):
            self._change(data)
        return bytes(data[:LONGEST])

    def _change(self, data: bytearray) -> None:
        dice = self.random
        at = dice.randrange(len(data) + 1)
        what = dice.randrange(9)
        if what == 0:
            data[at:at] = dice.randbytes(1 + dice.randrange(8))
        elif what == 1:
            del data[at : at + 1 + dice.randrange(8)]
        elif what == 2 and at < len(data):
            data[at] ^= 1 << dice.randrange(8)
        elif what == 3 and at < len(data):
            data[at] = dice.randrange(256)
        elif what == 4 and self.words:
            data[at:at] = dice.choice(self.words)
        elif what == 5:
            other = dice.choice(self.pool)
            data[at:] = other[dice.randrange(len(other) + 1) :]
        elif what == 6:
            size = dice.choice((1, 2, 4, 8))
            number = dice.choice(NUMBERS) & ((1 << 8 * size) - 1)
            data[at : at + size] = number.to_bytes(size, "big")
        elif what == 7:
            piece = data[at : at + 1 + dice.randrange(20)]
            data[at:at] = piece * (1 + dice.randrange(3))
        else:
            del data[at:]
            data += dice.randbytes(dice.randrange(40))

    def keep(self, data: bytes) -> None:
        self.pool.append(data)
