"""What one subscriber of a publisher wants (RFC 29/PUBSUB: prefix matching, each subscription counted)."""

from typing import Final

from polydomo.errors import ProtocolError

# What one peer may make us keep: its prefixes, each with what it costs to remember one.
SUBSCRIPTION_BYTES: Final = 1024 * 1024
SUBSCRIPTION_COST: Final = 100


class Subscriptions:
    """The prefixes of one peer. Subscribing twice needs cancelling twice."""

    __slots__ = ("_counts", "_size")

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}
        self._size = 0

    def change(self, topic: bytes, wanted: bool) -> None:
        """Count a subscription up or down; cancelling what was never wanted is ignored."""
        count = self._counts.get(topic, 0)
        if wanted:
            if not count:
                self._size += len(topic) + SUBSCRIPTION_COST
                if self._size > SUBSCRIPTION_BYTES:
                    raise ProtocolError(
                        f"{len(self._counts)} subscriptions and one more are too many to keep"
                    )
            self._counts[topic] = count + 1
        elif count > 1:
            self._counts[topic] = count - 1
        elif count:
            self._size -= len(topic) + SUBSCRIPTION_COST
            del self._counts[topic]

    def matches(self, topic: bytes) -> bool:
        """Does any prefix match? The cost is bounded by the topic's length, however many prefixes there are."""
        counts = self._counts
        if len(counts) > len(topic):
            return any(topic[:size] in counts for size in range(len(topic) + 1))
        return any(topic.startswith(prefix) for prefix in self._counts)

    def __len__(self) -> int:
        return len(self._counts)
