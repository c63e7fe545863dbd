"""core: features are called only where they do something."""

from __future__ import annotations

from polydomo.core.features.deadline import Deadline
from polydomo.core.features.durability import Durability
from polydomo.core.features.feature import PASS, Feature, Features
from polydomo.core.tracked_job import TrackedJob
from tests.support.core import Bench


class Watching(Feature):
    """A feature from outside the core, which is interpreted where the core is compiled."""

    def on_submit(self, job: TrackedJob) -> int:
        return PASS


class WatchingMore(Watching):
    def on_dispatch(self, job: TrackedJob) -> None:
        pass


def test_a_feature_is_listed_where_its_class_or_a_base_overrides_a_method() -> None:
    first, second = Watching(), WatchingMore()
    features = Features([first, second])
    assert features.all == [first, second]
    assert features.on_submit == [first, second]
    assert features.on_dispatch == [second]
    assert features.on_ready == features.on_reply == features.on_conclude == features.on_end == []


def test_a_feature_that_is_added_later_comes_before_the_last_one() -> None:
    first, last, added = Watching(), WatchingMore(), Watching()
    features = Features([first, last])
    features.insert(-1, added)
    assert features.on_submit == [first, added, last]


def test_features_of_the_core_are_listed_where_they_act() -> None:
    """Also in the compiled form, where methods are not Python functions."""
    tracking = Bench().broker._tracking
    deadline, durability = Deadline(tracking), Durability(tracking)
    features = Features([deadline, durability])
    assert features.on_submit == features.on_ready == [deadline, durability]
    assert features.on_end == [deadline]
    assert features.on_dispatch == features.on_partial == features.on_event == [durability]
    assert features.on_conclude == [durability]
    assert features.on_reply == []
