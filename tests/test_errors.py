"""Tests of the error classes: handlers of Python's own exceptions catch ours."""

from __future__ import annotations

import pickle

import pytest

from polydomo.errors import PolydomoError, Timeout, Unreachable


@pytest.mark.parametrize(("kind", "also"), [(Timeout, TimeoutError), (Unreachable, ConnectionError)])
def test_some_are_pythons_own_kinds_too(kind: type[PolydomoError], also: type[OSError]) -> None:
    for error in (kind("it is gone", hint="look for it"), pickle.loads(pickle.dumps(kind("it is gone")))):
        assert isinstance(error, also)
        assert isinstance(error, PolydomoError)
        assert error.message == "it is gone"
    assert str(kind("it is gone", hint="look for it")) == "it is gone (look for it)"
    assert str(kind("it is gone")) == f"it is gone ({kind.hint})"
    assert kind("it is gone").args == ("it is gone",)


def test_a_call_that_took_too_long_is_not_taken_for_one_that_found_nobody() -> None:
    assert not issubclass(Timeout, ConnectionError)
    assert not issubclass(Unreachable, TimeoutError)
