"""Tests of the locations of ledger, tables and catalog in the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from polydomo.errors import ConfigError
from polydomo.pipeline.files import literal
from polydomo.pipeline.places import places_for
from polydomo.server.settings import BrokerSection, LedgerSection, Settings, SparkSection


def settings(data: str = "/data", ledger: str = "", **spark: Any) -> Settings:
    return Settings(
        broker=BrokerSection(data=data), ledger=LedgerSection(folder=ledger), spark=SparkSection(**spark)
    )


def test_by_default_all_is_in_the_brokers_folder() -> None:
    for found in (places_for(settings()), places_for(settings(ledger="auto"))):
        assert found.ledger == "file:///data/ledger"
        assert found.tables == "file:///data/tables"
        assert found.options["uri"] == "sqlite:////data/tables/catalog.db"
        assert found.checkpoint.startswith(found.tables)
        assert found.lock == Path("/data/tables/_state/lock")


def test_what_is_set_wins() -> None:
    assert places_for(settings(ledger="/broker")).ledger == "file:///broker"
    assert places_for(Settings(spark=SparkSection(ledger="s3a://b/l", tables="/t"))).ledger == "s3a://b/l"
    far = places_for(settings(tables="s3a://b/t/", catalog="https://host/api", catalog_options=["token=x"]))
    assert (far.tables, far.lock) == ("s3a://b/t", None)
    assert (far.options["type"], far.options["token"]) == ("rest", "x")
    named = places_for(settings(catalog="prod", catalog_options=["namespace=ops"]))
    assert (named.catalog, named.namespace) == ("prod", "ops")
    assert "namespace" not in named.options


def test_a_broker_that_chooses_its_own_folder_has_the_tables_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = places_for(Settings())
    assert found.tables.startswith(f"file://{tmp_path}/polydomo/")
    assert found.tables.endswith("/tables")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (settings(data=""), "the ledger's location is unknown"),
        (settings(data="", ledger="/l"), "the location of the tables is unknown"),
        (settings(tables="s3a://b/t"), "a SQLite catalog cannot be stored at s3a://b/t"),
        (settings(catalog_options=["nonsense"]), "KEY=VALUE"),
    ],
)
def test_what_cannot_be_is_said(given: Settings, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        places_for(given)


def test_a_name_is_no_pattern() -> None:
    assert literal("file:///a/jobs [1],{x}*.parquet") == r"file:///a/jobs \[1\]\,\{x\}\*.parquet"
