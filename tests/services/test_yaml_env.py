"""services/yamlfile: YAML with environment variables in it, and no other template code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from polydomo.errors import ConfigError
from polydomo.services import yaml_env

ENVIRON = {"PORT": "5555", "WORD": "hello", "TRICKY": 'a"b: [c] #d', "LIST": "[1, two]", "EMPTY": ""}


def parse(text: str) -> Any:
    return yaml_env.parse(text, "some.yaml", ENVIRON)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: ${WORD}", "hello"),
        ('a: "${WORD}"', "hello"),
        ("a: {{ env.WORD }}", "hello"),
        ("a: {{env.WORD}}", "hello"),
        ("a: {{- env.WORD -}}", "hello"),
        ("""a: {{ env["WORD"] }}""", "hello"),
        ("""a: '{{ env["WORD"] }}'""", "hello"),
        ("a: {{ env['WORD'] }}", "hello"),
        ("a: x-${WORD}-{{ env.WORD }}", "x-hello-hello"),
        ("a: ${PORT}", 5555),
        ('a: "${PORT}"', "5555"),
        ("a: '${PORT}'", "5555"),
        ("a: {{ env.PORT }}", 5555),
        ("a: tcp://h:${PORT}", "tcp://h:5555"),
        ("a: ${NO:-7}", 7),
        ("a: ${EMPTY:-7}", 7),
        ("a: ${PORT:-7}", 5555),
        ('a: "${NO:-}"', ""),
        ("a: ${NO:-}", None),
        ("a: ${EMPTY}", None),
        ('a: "${EMPTY}"', ""),
        ("a: ${TRICKY}", 'a"b: [c] #d'),
        ('a: "${TRICKY}"', 'a"b: [c] #d'),
        ("a: |\n  x ${TRICKY}\n", 'x a"b: [c] #d\n'),
        ("a: {{ env.LIST }}", [1, "two"]),
        ('a: "{{ env.LIST }}"', "[1, two]"),
        ("a: [${PORT}, '${PORT}', $${PORT}]", [5555, "5555", "${PORT}"]),
        ("a: {b: ${WORD}}", {"b": "hello"}),
        ("a: $PORT $5 {}", "$PORT $5 {}"),
        ("a: {b: {c: 1}}", {"b": {"c": 1}}),
        ("a: 1 # ${NO} {{ nonsense }} {% if %}", 1),
        ("{# one\nis left out #}a: 1", 1),
        ("a: 2020-02-03", "2020-02-03"),
        ("a: !!binary aGk=", "aGk="),
    ],
)
def test_values(text: str, value: object) -> None:
    assert parse(text) == {"a": value}


def test_keys_are_texts_and_may_be_variables() -> None:
    assert parse("1: a\nyes: b\n~: c\n${WORD}: d\n1.5: e") == {
        "1": "a",
        "true": "b",
        "null": "c",
        "hello": "d",
        "1.5": "e",
    }


def test_aliases_are_copied_and_merge_keys_work() -> None:
    found = parse("base: &b {x: 1}\nsame: *b\nmore: {<<: *b, y: 2}")
    assert found == {"base": {"x": 1}, "same": {"x": 1}, "more": {"x": 1, "y": 2}}
    found["base"]["x"] = 2
    assert found["same"] == {"x": 1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("b: 1\na: ${NO}", "some.yaml:2: the environment variable NO is not set"),
        ("a: {{ env.NO }}", "some.yaml:1: the environment variable NO is not set"),
        ("a: {{ nonsense }}", "some.yaml:1: {{ nonsense }} is template code"),
        ("a: {{ env.NO | default('x') }}", "is template code"),
        ("a: '{% if x %}'", "{% if x %} is template code"),
        ("{% for x in y %}\na: 1\n{% endfor %}", "some.yaml:1: {% for x in y %} is template code"),
        ("a: {{ env.WORD", "{{ is template code"),
        ("a: ${}", "${} is no variable"),
        ("a: ${two words}", "${two words} is no variable"),
        ("a: ${WORD", "${WORD is no variable"),
        ("a: [", "is not YAML"),
        ("a: 1\n b: 2", "some.yaml:2: is not YAML"),
        ("a: !!python/object/apply:os.getcwd []", "no tag"),
        ("a: !!python/name:os.getcwd", "is not YAML"),
        ("a: &a [*a]", "some.yaml:1: contains itself"),
        ("a: !!timestamp 2020-13-45", "month"),
        ("? [1]\n: 2", "cannot be a key"),
        ("[" * 300_000, "nested more than"),
        ("a: [\n" * 300, "nested more than"),
        ("a: \0", "is not YAML"),
        ("a: 1\n---\nb: 2", "is not YAML"),
    ],
)
def test_mistakes_are_told_with_their_place(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(text)
    assert words in str(error.value)


def test_aliases_of_aliases_do_not_fill_the_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(ConfigError, match="more than"):
        parse("\n".join(lines))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yaml: cannot be read"):
        yaml_env.read(tmp_path / "missing.yaml", {})
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe4")
    with pytest.raises(ConfigError, match="UTF-8"):
        yaml_env.read(tmp_path / "latin.yaml", {})


@settings(deadline=None)
@given(st.text(st.characters(blacklist_categories=("Cs",)), max_size=50))
def test_a_value_never_changes_the_structure(value: str) -> None:
    """Whatever is in the variable, in quotes it is that text."""
    found = yaml_env.parse("a: \"${X}\"\nb: '{{ env.X }}'\nc: 1", "f", {"X": value})
    assert found == {"a": value, "b": value, "c": 1}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab${} #:'\"", max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3)
    ),
    max_leaves=10,
)


@settings(deadline=None)
@given(json_values)
def test_what_has_no_variables_is_plain_yaml(value: Any) -> None:
    text = yaml.safe_dump(value)
    if not any(mark in text for mark in ("${", "{{", "{#")):
        assert yaml_env.parse(text, "f", {}) == value
