"""The budget of denials: nobody can fill the audit log with them, and none is lost without a trace."""

from __future__ import annotations

from polydomo.security.audit_record import DENIED, AuditEntry
from polydomo.security.denial_budget import BURST, KINDS, OTHERS, PERIOD, RATE, DenialBudget


def denial(principal: str = "ann", address: str = "") -> AuditEntry:
    return AuditEntry(DENIED, principal, "call", target="mail", address=address)


def exhausted(now: float = 0.0) -> DenialBudget:
    budget = DenialBudget(now)
    assert all(budget.admits(denial(), now) for _ in range(BURST))
    return budget


def test_a_burst_is_recorded_one_by_one_and_the_rest_is_counted() -> None:
    budget = exhausted()
    assert not any(budget.admits(denial(address=f"10.0.0.1:{port}"), 0.0) for port in range(1000))
    (counted,) = budget.collect()
    assert counted == AuditEntry(DENIED, "ann", "call", target="mail", count=1000)
    assert budget.collect() == []


def test_the_budget_grows_with_time_up_to_a_burst() -> None:
    budget = exhausted()
    assert not budget.admits(denial(), 0.5 / RATE)
    assert budget.admits(denial(), 1.0 / RATE)
    assert not budget.admits(denial(), 1.0 / RATE)
    later = 1_000_000.0
    assert sum(budget.admits(denial(), later) for _ in range(10 * BURST)) == BURST


def test_counted_denials_are_due_after_their_period() -> None:
    budget = exhausted()
    assert not budget.is_due(2 * PERIOD)
    assert not budget.admits(denial(), 0.1)
    assert not budget.is_due(PERIOD)
    assert budget.is_due(0.1 + PERIOD)
    budget.collect()
    assert not budget.is_due(3 * PERIOD)


def test_each_kind_is_counted_by_itself_up_to_a_number_of_kinds() -> None:
    budget = exhausted()
    for number in range(KINDS + 30):
        for _ in range(2):
            assert not budget.admits(denial(f"ann-{number}"), 0.0)
    counted = budget.collect()
    assert [entry.principal for entry in counted] == [*(f"ann-{number}" for number in range(KINDS)), ""]
    assert {entry.count for entry in counted[:KINDS]} == {2}
    assert (counted[-1].reason, counted[-1].count) == (OTHERS, 60)


def test_the_log_of_a_day_of_denials_has_a_bounded_size() -> None:
    budget = DenialBudget(0.0)
    written = 0
    for second in range(24 * 3600):
        for principal in ("ann", "berta"):
            written += budget.admits(denial(principal), float(second))
        if budget.is_due(float(second)):
            written += len(budget.collect())
    assert written <= BURST + 24 * 3600 * RATE + 24 * 60 * (KINDS + 1)
    assert written >= 24 * 3600 * RATE
