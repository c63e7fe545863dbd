"""Keys of an OpenID provider: where they come from, and how often they are fetched."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from polydomo.errors import ConfigError
from polydomo.security.provider_keys import (
    DOCUMENT_MAX,
    KEYS_MAX,
    PAUSE,
    REFRESH,
    STALE,
    KeysUnavailable,
    ProviderKeys,
)
from polydomo.security.tokens import TokenRefused
from tests.support.oidc import ISSUER, Provider, public_jwk, serving

ONE, TWO = public_jwk("EC", "one"), public_jwk("EC", "two", 1)


class World:
    """Time, work in the background, and what was reported."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waiting: list[Callable[[], None]] = []
        self.reported: list[str] = []

    def keys(self, issuer: str, location: str = "") -> ProviderKeys:
        def background(step: Callable[[], None]) -> None:
            self.waiting.append(step)

        return ProviderKeys(issuer, location, background, self.reported.append, lambda: self.now)

    def work(self) -> int:
        """Do what is waiting, and return how much that was."""
        waiting, self.waiting = self.waiting, []
        for step in waiting:
            step()
        return len(waiting)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def provider() -> Iterator[Provider]:
    with serving() as found:
        found.publish(ONE)
        yield found


def test_keys_are_found_by_discovery_in_the_background(world: World, provider: Provider) -> None:
    keys = world.keys(provider.url)
    with pytest.raises(KeysUnavailable, match="not known yet"):
        keys.find("one", "ES256")
    assert not provider.fetched
    assert world.work() == 1
    assert keys.find("one", "ES256") == ONE
    assert provider.fetched == ["/.well-known/openid-configuration", "/keys"]


def test_a_new_key_is_fetched_when_a_token_names_it(world: World, provider: Provider) -> None:
    keys = world.keys(provider.url, f"{provider.url}/keys")
    world.work()
    provider.publish(ONE, TWO)
    world.now += PAUSE
    with pytest.raises(KeysUnavailable, match="being fetched"):
        keys.find("two", "ES256")
    world.work()
    assert keys.find("two", "ES256") == TWO


def test_unknown_keys_cause_one_fetch_per_pause(world: World, provider: Provider) -> None:
    keys = world.keys(provider.url, f"{provider.url}/keys")
    world.work()
    world.now += PAUSE
    for number in range(100):
        with pytest.raises(KeysUnavailable):
            keys.find(f"made-up-{number}", "ES256")
    assert world.work() == 1
    for number in range(100):
        with pytest.raises(TokenRefused, match="does not have"):
            keys.find(f"made-up-{number}", "ES256")
    assert world.work() == 0
    assert len(provider.fetched) == 2


def test_keys_are_fetched_again_regularly_and_a_withdrawn_one_is_forgotten(
    world: World, provider: Provider
) -> None:
    keys = world.keys(provider.url, f"{provider.url}/keys")
    world.work()
    provider.publish(TWO)
    world.now += REFRESH
    assert keys.find("one", "ES256") == ONE, "nobody waits for the fetch"
    assert world.work() == 1
    with pytest.raises(TokenRefused):
        keys.find("one", "ES256")


def test_known_keys_are_used_while_the_provider_is_down_but_not_for_ever(
    world: World, provider: Provider
) -> None:
    keys = world.keys(provider.url, f"{provider.url}/keys")
    world.work()
    provider.documents.clear()
    world.now += REFRESH
    keys.find("one", "ES256")
    world.work()
    assert "cannot fetch" in world.reported[0]
    assert "Not Found" in world.reported[0]
    assert keys.find("one", "ES256") == ONE
    world.now += STALE
    with pytest.raises(KeysUnavailable):
        keys.find("one", "ES256")
    provider.publish(ONE)
    world.work()
    assert keys.find("one", "ES256") == ONE


def test_a_provider_that_is_down_at_the_start_is_tried_again(world: World, provider: Provider) -> None:
    provider.documents.clear()
    keys = world.keys(provider.url)
    world.work()
    with pytest.raises(KeysUnavailable):
        keys.find("one", "ES256")
    assert world.work() == 0
    provider.publish(ONE)
    world.now += PAUSE
    with pytest.raises(KeysUnavailable):
        keys.find("one", "ES256")
    world.work()
    assert keys.find("one", "ES256") == ONE


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"", "no JSON object"),
        (b"[]", "no JSON object"),
        (b"{}", "has no keys"),
        (b'{"keys": {}}', "has no keys"),
        (b'{"keys": [' + b" " * DOCUMENT_MAX + b"]}", "no JSON object"),
    ],
)
def test_a_damaged_document_is_reported(
    world: World, provider: Provider, document: bytes, reason: str
) -> None:
    provider.documents["/keys"] = document
    world.keys(provider.url, f"{provider.url}/keys")
    world.work()
    assert reason in world.reported[0]


def test_a_discovery_document_of_another_issuer_is_not_used(world: World, provider: Provider) -> None:
    document = {"issuer": "https://evil.example", "jwks_uri": f"{provider.url}/keys"}
    provider.documents["/.well-known/openid-configuration"] = json.dumps(document).encode()
    world.keys(provider.url)
    world.work()
    assert "another issuer" in world.reported[0]
    assert "/keys" not in provider.fetched


@pytest.mark.parametrize("place", ["http://id.example/keys", "file:///etc/passwd", "ftp://a/b", "https://"])
def test_keys_come_over_https_or_from_this_machine(world: World, provider: Provider, place: str) -> None:
    with pytest.raises(ConfigError, match="is not a URL to fetch keys from"):
        world.keys(ISSUER, place)
    document = {"issuer": provider.url, "jwks_uri": place}
    provider.documents["/.well-known/openid-configuration"] = json.dumps(document).encode()
    provider.redirects["/elsewhere"] = place
    world.keys(provider.url)
    world.keys(provider.url, f"{provider.url}/elsewhere")
    world.work()
    assert len(world.reported) == 2
    for reason in world.reported:  # urllib itself refuses to be redirected to some of them
        assert "is not a URL to fetch keys from" in reason or "is not allowed" in reason


def test_a_file_is_read_at_the_start_and_again(world: World, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    with pytest.raises(ConfigError, match="cannot read"):
        world.keys("any name", str(file))
    file.write_text(json.dumps({"keys": [ONE]}))
    keys = world.keys("any name", str(file))
    assert keys.find("one", "ES256") == ONE
    file.write_text(json.dumps({"keys": [TWO]}))
    world.now += REFRESH
    keys.find("one", "ES256")
    world.work()
    assert keys.find("two", "ES256") == TWO


def test_only_keys_for_the_signature_are_used(world: World, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    many = [public_jwk("EC", f"k{number}") for number in range(KEYS_MAX + 1)]
    others = [
        public_jwk("EC", "enc", use="enc"),
        public_jwk("EC", "es384", alg="ES384"),
        {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"},
        "no key",
    ]
    file.write_text(json.dumps({"keys": [*others, *many]}))
    keys = world.keys("any name", str(file))
    assert keys.find("k0", "ES256")["kid"] == "k0"
    for kid in ("enc", "es384", "secret", f"k{KEYS_MAX}"):
        with pytest.raises(TokenRefused, match="does not have"):
            keys.find(kid, "ES256")
    with pytest.raises(TokenRefused, match="does not say which"):
        keys.find(None, "ES256")
