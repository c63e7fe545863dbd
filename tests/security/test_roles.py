"""Roles and quotas of principals."""

from __future__ import annotations

import pytest

from polydomo.core.principals import (
    ADMINISTER,
    ANONYMOUS,
    CALL,
    CANCEL,
    DELEGATE,
    EVERYTHING,
    OBSERVE,
    OPERATE,
    READ,
    SERVE,
    VERBS,
    Principals,
    Quota,
)
from polydomo.security.roles import BUILT_IN, Denial, Grant, RoleAuthority, Roles

ROLES = {
    "resizer": [Grant.parse(SERVE, "resize")],
    "shop": [Grant.parse(CALL, "resize"), Grant.parse(CALL, "mail.*@eu-*"), Grant.parse(OBSERVE, "*")],
}
PRINCIPALS = {"worker-1": ["resizer"], "shop-*": ["shop"], "shop-1": ["worker"], "root": ["admin"]}


@pytest.fixture
def denials() -> list[Denial]:
    return []


@pytest.fixture
def authority(denials: list[Denial]) -> RoleAuthority:
    return RoleAuthority(Roles(ROLES, PRINCIPALS), {}, denials.append)


@pytest.mark.parametrize(
    ("principal", "verb", "service", "worker", "allowed"),
    [
        ("worker-1", SERVE, b"resize", b"a", True),
        ("worker-1", SERVE, b"mail.x", b"a", False),
        ("worker-1", CALL, b"resize", b"", False),
        ("shop-2", CALL, b"resize", b"", True),
        ("shop-2", CALL, b"resize", b"a", True),
        ("shop-2", CALL, b"resized", b"", False),
        ("shop-2", SERVE, b"resize", b"a", False),
        ("shop-2", CALL, b"mail.send", b"eu-1", True),
        ("shop-2", CALL, b"mail.send", b"us-1", False),
        ("shop-2", CALL, b"mail.send", b"", False),  # any worker: also one in the us
        ("shop-2", OBSERVE, EVERYTHING, b"", True),
        ("shop-2", CALL, EVERYTHING, b"", False),
        ("shop-1", CALL, b"resize", b"", True),  # all entries that match count
        ("shop-1", SERVE, b"anything", b"", True),
        ("stranger", OBSERVE, b"resize", b"", False),
        (ANONYMOUS, CALL, b"resize", b"", False),
        ("oidc:shop-9", CALL, b"resize", b"", False),
        ("root", ADMINISTER, EVERYTHING, b"", True),
        ("shop-2", CALL, b"mail.\xff", b"eu-1", False),  # shown as 0x6d…
    ],
)
def test_what_no_role_grants_is_denied(
    authority: RoleAuthority, principal: str, verb: str, service: bytes, worker: bytes, allowed: bool
) -> None:
    assert authority.allows(principal, verb, service, worker) is allowed


@pytest.mark.parametrize(
    ("role", "verbs"),
    [
        ("client", {CALL}),
        ("worker", {SERVE}),
        ("observer", {OBSERVE}),
        ("operator", {OBSERVE, OPERATE, READ, CANCEL}),
        ("admin", {CALL, SERVE, READ, CANCEL, OBSERVE, OPERATE, ADMINISTER, DELEGATE}),
    ],
)
def test_built_in_roles(role: str, verbs: set[str]) -> None:
    assert role in BUILT_IN
    roles = RoleAuthority(Roles({}, {"ann": [role]}), {}, print)
    for service in (b"resize", EVERYTHING):
        assert {verb for verb in VERBS if roles.allows("ann", verb, service, b"")} == verbs


def test_names_that_are_not_printable_are_granted_as_they_are_shown() -> None:
    roles = RoleAuthority(Roles({"a": [Grant.parse(CALL, "0xff00")]}, {"ann": ["a"]}), {}, print)
    assert roles.allows("ann", CALL, b"\xff\0", b"")
    assert not roles.allows("ann", CALL, b"0xff00", b"")


def test_a_reason_names_the_role_the_grant_and_the_entry() -> None:
    roles = Roles(ROLES, PRINCIPALS)
    (reason,) = roles.reasons("shop-2", CALL, b"mail.send", b"eu-1")
    assert (reason.role, str(reason.grant), reason.entry) == ("shop", "mail.*@eu-*", "shop-*")
    assert roles.of("shop-1") == {"worker": "shop-1", "shop": "shop-*"}
    assert roles.holders("shop") == ["shop-*"]


def test_a_denial_is_reported_once_for_each_refusal(authority: RoleAuthority, denials: list[Denial]) -> None:
    principals = Principals()
    principals.use(authority)
    ann = principals.get("ann")
    assert not principals.allows(ann, CALL, b"resize")
    assert denials == []
    for _ in range(2):
        assert not principals.may(ann, CALL, b"resize", b"eu-1")
    assert denials == [Denial("ann", CALL, "resize", "eu-1")] * 2
    assert str(denials[0]) == "ann may not call resize at the worker eu-1"


@pytest.mark.parametrize(
    ("denial", "advice"),
    [
        (Denial("ann", CALL, "resize"), '[principals] ann = ["shop"]'),
        (Denial("root", SERVE, "resize", "r1"), '[principals] root = ["admin", "resizer"]'),
        (Denial("oidc:ann", CALL, "resize"), '[principals] "oidc:ann" = ["shop"]'),
        (Denial("worker-1", SERVE, "mail", "r1"), '[roles.resizer] serve = ["resize", "mail"]'),
        (Denial("worker-1", CALL, "mail", "r1"), '[roles.resizer] call = ["mail@r1"]'),
        (Denial("worker-1", READ, "resize"), '[roles.resizer] read = ["resize"]'),
        (Denial("ann", CALL, "sum"), '[roles.ROLE] call = ["sum"] and [principals] ann = ["ROLE"]'),
        (
            Denial("shop-1", CALL, "sum"),
            '[roles.ROLE] call = ["sum"] and [principals] shop-1 = ["worker", "ROLE"]',
        ),
        (Denial("shop-2", CALL, "sum"), '[roles.ROLE] call = ["sum"] and [principals] shop-2 = ["ROLE"]'),
        (Denial("ann", OPERATE, "*"), '[principals] ann = ["operator"]'),
        (Denial("ann", ADMINISTER, "*"), '[principals] ann = ["admin"]'),
        (Denial("ann", CALL, "*"), ""),  # the name of a service that somebody made up
        (Denial("ann", CALL, "s*"), ""),
        (Denial("ann", OPERATE, "s*"), ""),
        (Denial("ann", CALL, "a@b"), ""),
        (Denial("ann", SERVE, "sum", "*"), ""),
    ],
)
def test_the_advice_grants_what_was_denied_and_little_else(denial: Denial, advice: str) -> None:
    assert Roles(ROLES, PRINCIPALS).advice(denial) == advice


def test_the_advice_prefers_the_most_precise_role_and_then_the_smallest() -> None:
    texts = {"all": ["*"], "wide": ["re*"], "two": ["resize", "x"], "one": ["resize"]}
    roles = Roles({role: [Grant.parse(CALL, text) for text in given] for role, given in texts.items()}, {})
    for service, role in [("resize", "one"), ("rename", "wide"), ("x", "two"), ("sum", "all")]:
        assert roles.advice(Denial("ann", CALL, service)) == f'[principals] ann = ["{role}"]'


def test_without_roles_everything_is_allowed() -> None:
    assert RoleAuthority(None, {}, print).allows(ANONYMOUS, ADMINISTER, EVERYTHING, b"")


def test_the_most_precise_quota_counts() -> None:
    limits = {
        "*": Quota(jobs=1),
        "shop-*": Quota(jobs=2),
        "shop-1": Quota(jobs=3),
        "anonymous": Quota(jobs=4),
    }
    authority = RoleAuthority(None, limits, print)
    for principal, jobs in [("ann", 1), ("shop-2", 2), ("shop-1", 3), (ANONYMOUS, 4), ("oidc:shop-1", 1)]:
        quota = authority.quota(principal)
        assert quota is not None
        assert quota.jobs == jobs
    assert RoleAuthority(None, {"shop-*": Quota(jobs=2)}, print).quota("ann") is None
