"""Subscriptions of one subscriber (RFC 29/PUBSUB: prefixes, each with a count)."""

from typing import Final

from polydomo.errors import ProtocolError

# Memory that the prefixes of one peer may take, and the overhead of each.
SUBSCRIPTION_BYTES: Final = 1024 * 1024
SUBSCRIPTION_COST: Final = 100


class Subscriptions:
    """The prefixes of one peer. A prefix subscribed to twice must be cancelled twice."""

    __slots__ = ("_counts", "_size")

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}
        self._size = 0

    def change(self, topic: bytes, wanted: bool) -> None:
        """Count a subscription up or down; cancelling an unknown one has no effect."""
        count = self._counts.get(topic, 0)
        if wanted:
            if not count:
                self._size += len(topic) + SUBSCRIPTION_COST
                if self._size > SUBSCRIPTION_BYTES:
                    raise ProtocolError(f"more than {len(self._counts)} subscriptions take too much memory")
            self._counts[topic] = count + 1
        elif count > 1:
            self._counts[topic] = count - 1
        elif count:
            self._size -= len(topic) + SUBSCRIPTION_COST
            del self._counts[topic]

    def matches(self, topic: bytes) -> bool:
        """Return whether a prefix matches. The cost is bounded by the topic's length, not the number of prefixes."""
        counts = self._counts
        if len(counts) > len(topic):
            return any(topic[:size] in counts for size in range(len(topic) + 1))
        return any(topic.startswith(prefix) for prefix in self._counts)

    def __len__(self) -> int:
        return len(self._counts)
