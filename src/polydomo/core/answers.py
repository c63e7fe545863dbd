"""What became of an answer that a worker gave."""

from typing import Final

ANSWERED: Final = 0
LATE: Final = 1  # the attempt had been taken from this worker; its answer is dropped and it may work again
STRAY: Final = 2  # this worker never had such an attempt
