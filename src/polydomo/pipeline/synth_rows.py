"""Rows of the ledger from a world's cells (synth_world.py): Spark expressions, no Python per row.

Every random number is the hash of the job's number and a constant derived from the seed and a name. So a row is the
same in whatever task and partition it is computed: `attempts` use the same expressions as `jobs` and agree with them.

Words are represented by numbers until the last step, because numbers are cheap to pass between steps.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pandas as pd
from pyspark.sql import functions as F

from polydomo.ledger import schema
from polydomo.pipeline.synth_world import DAY, FAILING, LOST, RUN_DAYS, SLOW, SLOWER, World, run_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BROKER: Final = "synth"
US: Final = 1_000_000

DIALECTS: Final = ("mdp", "dcp", "nfp", "memo", "http")
MDP, DCP, NFP, MEMO, HTTP = range(len(DIALECTS))
ERRORS: Final = (None, "worker-error", "retries-exhausted", "queue-full", "cancelled")
FINE, RAISED, EXHAUSTED, FULL, CANCELLED = range(len(ERRORS))

# Dialects of a hundred clients.
_DIALECTS_IN: Final = (MDP,) * 40 + (NFP,) * 20 + (HTTP,) * 20 + (DCP,) * 10 + (MEMO,) * 10
_TEAMS: Final = ("atlas", "borealis", "cygnus", "dorado", "eridanus", "fornax", "gemini", "hydra")

_MOST_ATTEMPTS: Final = 3
_BACKOFF_US: Final = 500_000
_LOSSES: Final = 0.0004  # share of attempts that lose their worker in normal operation
_LOSSES_BAD: Final = 0.35
_FAILURES_BAD: Final = 0.8
_CANCELLED: Final = 0.0015
_LONGEST: Final = 1800.0  # seconds: the service's timeout

# Fan-out jobs of NFP: one parent with three parts.
_FAMILY: Final = 4
_FAMILIES: Final = 0.02


class Dice:
    """Random numbers by name, different for each value of a column."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def bits(self, name: str, column: str = "id") -> Column:
        """Return 64 random bits."""
        # The column holds small numbers, so two names never give the hash the same input.
        salt = hashlib.blake2b(f"{self._seed}/{name}".encode(), digest_size=8).digest()
        return F.xxhash64(
            F.col(column).cast("bigint").bitwiseXOR(F.lit(int.from_bytes(salt, "big", signed=True)))
        )

    def __call__(self, name: str, column: str = "id") -> Column:
        """Return a uniform number in [0, 1), one of 2^53."""
        return F.shiftrightunsigned(self.bits(name, column), 11) * F.lit(2.0**-53)

    def normal(self, name: str) -> Column:
        """Return a standard normal number (Box and Muller)."""
        return F.sqrt(-2 * F.ln(1 - self(name))) * F.cos(2 * math.pi * self(f"{name}'"))

    def exponential(self, name: str) -> Column:
        """Return an exponential number with mean 1."""
        return -F.ln(1 - self(name))

    def hex(self, name: str, column: str = "id") -> Column:
        """Return 32 hex digits. The first of each half is never 0, so the length is constant."""
        halves = [
            F.hex(F.shiftrightunsigned(self.bits(half, column), 1).bitwiseOR(F.lit(1 << 62)))
            for half in (name, f"{name}'")
        ]
        return F.lower(F.concat(*halves))


def nature(world: World) -> pd.DataFrame:
    """Return the services' parameters, to be joined to the cells."""
    found = [
        (
            index,
            s.median,
            s.sigma,
            s.tail,
            -1 / s.alpha,
            s.workers,
            DIALECTS.index(s.dialect),
            s.durable,
            s.memo,
            s.errors,
            s.bytes_in,
            s.bytes_out,
        )
        for index, s in enumerate(world.services)
    ]
    first = ["service", "median", "sigma", "tail", "power", "workers"]
    then = ["speaks", "safe", "memo", "errors", "small", "large"]
    kinds = {"service": "int32", "workers": "int32", "speaks": "int32"}
    return pd.DataFrame(found, columns=first + then).astype(kinds)


def jobs(cells: DataFrame, world: World) -> DataFrame:
    """Return all columns of the ledger's `jobs`, in order. `cells` has the columns of Cells and of `nature`."""
    dice = Dice(world.seed)
    col = F.col
    ran = col("ran_us").isNotNull()
    waits = col("works") | col("parent_row")
    rows = _fates(cells, world, dice)
    rows = rows.select(
        "*",
        (col("queued_us") + F.coalesce("first_us", F.lit(0)) + col("lost_us")).alias("dispatched_us"),
        (
            col("queued_us")
            + F.coalesce("first_us", F.lit(0))
            + col("lost_us")
            + F.coalesce(F.when(col("parent_row"), col("family_us")), "ran_us", F.lit(0))
            + 40
        ).alias("finished_us"),
    )
    name = _word([s.name for s in world.services], col("service"))
    known = F.pmod(dice.bits("known", "client_number"), F.lit(10)) < 7
    made: dict[str, Column] = {
        "job_id": _job_id(dice, world),
        "parent": F.when(col("part_row"), dice.hex("job", "head")),
        "part": F.when(col("part_row"), (col("id") - col("head")).cast("int")),
        "key": F.when(col("durable") & (dice("keyed") < 0.6), F.hex(dice.bits("key"))),
        "service": name,
        "asked": name,
        "dialect_in": _word(DIALECTS, col("speaks_in")),
        "dialect_out": F.when(ran, _word(DIALECTS, col("speaks"))),
        "client": F.concat(F.lit("client-"), (col("client_number") + 1000).cast("string")),
        "principal": F.when(
            known, _word([f"team-{team}" for team in _TEAMS], F.pmod("client_number", F.lit(len(_TEAMS))))
        ),
        "worker": F.when(ran, F.concat(name, F.lit("-"), col("worker_number").cast("string"))),
        "broker": F.lit(BROKER),
        "run": _run(world),
        "target": F.when(col("parent_row"), F.lit("all")).otherwise(F.lit("any")),
        "submitted": F.timestamp_micros("submitted_us"),
        "queued": F.when(waits, F.timestamp_micros("queued_us")),
        "dispatched": F.when(ran, F.timestamp_micros("dispatched_us")),
        "first_partial": F.when(
            ran & (col("partials") > 0), F.timestamp_micros(col("dispatched_us") + F.floor(col("ran_us") / 3))
        ),
        "finished": F.timestamp_micros("finished_us"),
        "outcome": _word(schema.OUTCOMES, col("end")),
        "error": F.when(col("why") != FINE, _word([error or "" for error in ERRORS], col("why"))),
        "attempts": F.when(ran, col("tries")).otherwise(F.lit(0)).cast("int"),
        "bytes_in": F.floor(col("small") * F.exp(dice.normal("in") * 0.8)),
        "bytes_out": F.when(
            col("why") == FINE, F.floor(col("large") * F.exp(dice.normal("out") * 0.8))
        ).otherwise(F.lit(0)),
        "priority": F.when(dice("urgent") < 0.03, F.lit(5)).otherwise(F.lit(0)),
        "deadline": F.when(dice("hurry") < 0.1, F.timestamp_micros(col("submitted_us") + 600 * US)),
        "waited_us": F.when(ran, col("first_us")),
        "took_us": col("finished_us") - col("submitted_us"),
        "rebuilt": F.lit(False),
    }
    return _ordered(rows, schema.JOBS, made)


def attempts(cells: DataFrame, world: World) -> DataFrame:
    """Return all columns of the ledger's `attempts`: the lost ones, except the last one of a dead job, which is part of
    the job's row."""
    dice = Dice(world.seed)
    col = F.col
    rows = _fates(cells, world, dice).where(col("lost") > 0)
    number = F.sequence(F.lit(1), F.least(col("lost"), F.lit(_MOST_ATTEMPTS - 1)))
    rows = rows.select("*", F.explode(number).alias("number"))
    began = col("queued_us") + col("first_us") + (col("number") - 1) * (col("loss_us") + _BACKOFF_US)
    name = _word([s.name for s in world.services], col("service"))
    worker = F.pmod(col("worker_number") + col("number"), col("workers"))
    made: dict[str, Column] = {
        "job_id": _job_id(dice, world),
        "service": name,
        "worker": F.concat(name, F.lit("-"), worker.cast("string")),
        "dialect_out": _word(DIALECTS, col("speaks")),
        "broker": F.lit(BROKER),
        "run": _run(world),
        "dispatched": F.timestamp_micros(began),
        "ended": F.timestamp_micros(began + col("loss_us")),
        "outcome": F.when(col("wrong") == LOST, F.lit("worker-lost")).otherwise(F.lit("overrun")),
        "ran_us": col("loss_us"),
        "rebuilt": F.lit(False),
    }
    return _ordered(rows, schema.ATTEMPTS, made)


def _fates(cells: DataFrame, world: World, dice: Dice) -> DataFrame:
    """Return one row per job, with everything that happens to it. Times in microseconds.

    Columns are added a few at a time: those that several others depend on must be computed once.
    """
    col = F.col
    slot_us = world.slot_seconds * US
    rows = cells.select(F.explode(F.sequence(col("first"), col("first") + col("count") - 1)).alias("id"), "*")
    # A few clients submit most jobs (the logarithm of a client's rank is uniform), and every service has some clients
    # of its own.
    rank = F.floor(F.pow(F.lit(float(world.clients)), dice("client"))) - 1
    own = F.when(dice("own") < 0.3, col("service") * 7).otherwise(F.lit(0))
    within = col("id") - col("first")
    head = col("id") - F.pmod(within, F.lit(_FAMILY))
    rows = rows.select(
        "*",
        F.pmod(rank + own, F.lit(world.clients)).alias("client_number"),
        head.alias("head"),
        dice("fate").alias("fate"),
        dice("loss").alias("loss"),
        dice("special").alias("special"),
    )
    family = (
        (col("speaks") == NFP)
        & (col("head") + _FAMILY <= col("first") + col("count"))
        & (dice("family", "head") < _FAMILIES)
    )
    rows = rows.select("*", family.alias("family"))
    dialect = _number(_DIALECTS_IN, F.pmod(dice.bits("dialect", "client_number"), F.lit(100)))
    fails = F.when(col("wrong") == FAILING, F.lit(_FAILURES_BAD)).otherwise(col("errors"))
    rows = rows.select(
        "*",
        (col("family") & (col("id") == col("head"))).alias("parent_row"),
        (col("family") & (col("id") != col("head"))).alias("part_row"),
        F.when(col("family"), F.lit(NFP)).otherwise(dialect).alias("speaks_in"),
        (
            _start_us(world)
            + col("slot") * slot_us
            + F.floor(F.when(col("family"), dice("moment", "head")).otherwise(dice("moment")) * slot_us)
        ).alias("submitted_us"),
        F.when(col("fate") < col("refused"), F.lit(0.0))
        .otherwise((col("fate") - col("refused")) / (1 - col("refused") + 1e-12) / fails)
        .alias("luck"),  # below 1: the job fails, if it is run
        (~col("family") & (col("fate") < col("refused"))).alias("full"),
    )
    memo = ~col("family") & ~col("full") & (col("special") < col("memo"))
    rows = rows.select(
        "*",
        (col("speaks_in").isin(NFP, HTTP) | col("safe")).alias("durable"),
        memo.alias("memo_hit"),
    )
    repeat = ~col("family") & ~col("full") & ~col("memo_hit") & col("durable") & (col("special") > 0.998)
    rows = rows.select("*", repeat.alias("repeat"))
    works = ~col("memo_hit") & ~col("repeat") & ~col("full") & ~col("parent_row")
    bad = F.when(col("wrong") == LOST, F.lit(_LOSSES_BAD)).otherwise(F.lit(_LOSSES))
    rows = rows.select("*", works.alias("works"), F.when(works, bad).otherwise(F.lit(0.0)).alias("bad"))
    # `lost` attempts precede the final one; a job that lost all of them is dead.
    lost = (
        F.when(col("loss") >= col("bad"), F.lit(0))
        .when(col("loss") >= col("bad") * col("bad"), F.lit(1))
        .when(col("loss") >= col("bad") * col("bad") * col("bad"), F.lit(2))
        .otherwise(F.lit(_MOST_ATTEMPTS))
    )
    rows = rows.select("*", lost.alias("lost"))
    why = (
        F.when(col("full"), F.lit(FULL))
        .when(~col("works"), F.lit(FINE))
        .when(col("lost") == _MOST_ATTEMPTS, F.lit(EXHAUSTED))
        .when(col("luck") < 1, F.lit(RAISED))
        .when((col("special") > 0.998 - _CANCELLED) & (col("lost") == 0) & ~col("part_row"), F.lit(CANCELLED))
        .otherwise(F.lit(FINE))
    )
    return _times(rows.select("*", why.alias("why")), dice)


def _times(rows: DataFrame, dice: Dice) -> DataFrame:
    """Add times. `first_us`: in the queue. `lost_us`: in lost attempts. `ran_us`: in the final attempt."""
    col = F.col
    usual = F.exp(col("sigma") * dice.normal("run"))
    run = F.when(dice("tail") < col("tail"), 5 * F.pow(1 - dice("far"), col("power"))).otherwise(usual)
    # Failures usually happen early.
    factor = F.when(col("wrong") == SLOW, F.lit(SLOWER)).otherwise(F.lit(1.0))
    factor = factor * F.when(col("why") == RAISED, F.lit(0.4)).otherwise(F.lit(1.0))
    run = F.least(col("median") * run * factor, F.lit(_LONGEST))
    wait = col("backlog") * (0.7 + 0.6 * dice("backlog"))
    wait = wait + F.when(dice("waits") < col("chance"), col("wait") * dice.exponential("wait")).otherwise(
        F.lit(0.0)
    )
    commit = F.when(col("durable"), 1500 + F.floor(3000 * dice("commit"))).otherwise(F.lit(20))
    end = (
        F.when(col("why") == FINE, F.lit(schema.OUTCOMES.index(schema.DONE)))
        .when(col("why") == FULL, F.lit(schema.OUTCOMES.index(schema.REFUSED)))
        .when(col("why") == CANCELLED, F.lit(schema.OUTCOMES.index(schema.CANCELLED)))
        .when((col("why") == EXHAUSTED) & col("durable"), F.lit(schema.OUTCOMES.index(schema.DEAD)))
        .otherwise(F.lit(schema.OUTCOMES.index(schema.FAILED)))
    )
    partials = F.when(col("works") & (col("speaks") != MEMO) & (dice("partials") < 0.05), F.lit(3))
    rows = rows.select(
        "*",
        end.alias("end"),
        (col("submitted_us") + commit).alias("queued_us"),
        F.when(col("works"), 30 + F.floor(wait * US)).alias("first_us"),
        (200 + F.floor(run * US)).alias("alone_us"),
        (5 * US + F.floor(5 * US * dice("lost"))).alias("loss_us"),
        F.pmod(dice.bits("worker"), col("workers")).alias("worker_number"),
        F.floor(col("median") * 3 * US * (1 + dice("brood"))).alias("family_us"),
        partials.otherwise(F.lit(0)).alias("partials"),
    )
    # The last of several lost attempts is recorded in the job's own row.
    before = F.least(col("lost"), F.lit(_MOST_ATTEMPTS - 1))
    return rows.select(
        "*",
        (before * (col("loss_us") + _BACKOFF_US)).alias("lost_us"),
        (before + 1).alias("tries"),
        F.when(col("why") == EXHAUSTED, col("loss_us"))
        .when(col("works") & (col("why") != CANCELLED), col("alone_us"))
        .alias("ran_us"),
    )


def _job_id(dice: Dice, world: World) -> Column:
    """Return ids like a broker's: durable jobs have a UUID, others the run's name and a number."""
    own = F.concat(_run(world), F.lit("-"), F.col("id").cast("string"))
    return F.when(F.col("durable"), dice.hex("job")).otherwise(own)


def _run(world: World) -> Column:
    names = [run_name(world.seed, number) for number in range(math.ceil(world.days / RUN_DAYS))]
    return _word(names, F.floor(F.col("slot") * world.slot_seconds / (RUN_DAYS * DAY)))


def _start_us(world: World) -> int:
    return int(world.start.timestamp()) * US


def _word(words: Sequence[str], index: Column) -> Column:
    """Return one of several constants, by index. One SQL text needs one call to Java, not one per constant."""
    return F.expr("array({})".format(", ".join(f"'{word}'" for word in words)))[index.cast("int")]


def _number(numbers: Sequence[int], index: Column) -> Column:
    return F.expr("array({})".format(", ".join(map(str, numbers))))[index.cast("int")]


def _ordered(rows: DataFrame, table: schema.LedgerTable, made: dict[str, Column]) -> DataFrame:
    return rows.select(*(made.get(c.name, F.col(c.name)).alias(c.name) for c in table.columns))
