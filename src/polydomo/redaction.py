"""Removal of secrets from log lines, error messages and the output of `config show`.

Two ways, both applied by `redact`:

- by form: the password in `scheme://user:password@host`, the value of a name that indicates a secret, in a URL's
  query (`?password=…`), a connection string (`sslpassword=…`) or an option (`fs.s3a.secret.key=…`), and the tokens of
  `polydomo tokens new` (`pdm_…`) and `polydomo keys invite` (`pdj_…`);
- by value: the secrets of the running configuration, registered with `learn` as soon as settings are read. So a
  library's error message that quotes a secret in another form is cleaned as well.

Settings that may contain a secret are marked in `server/settings.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote, unquote_plus

# Replacement of a secret.
MASK = "***"

# Shorter secrets are not masked by value, because they occur in ordinary words; by form they are.
SHORTEST = 4

_WORDS = (
    r"passw|passphrase|pwd|secret|token|credential|signature|authorization|connection[-_.]?string"
    r"|(?:api|access|account|private|encryption|shared|master|storage)[-_.]?key"
)
_NAME = re.compile(rf"{_WORDS}|(?<![a-z])(?:key|sig|auth)(?![a-z])", re.IGNORECASE)

# The whole authority, because a password may contain an @. The second form is for a password with a / instead of %2F.
_AUTHORITY = re.compile(r"(?P<head>\b[A-Za-z][\w+.-]*://[^\s/?#@:]*:)(?P<secret>[^\s/?#]+)(?=@)")
_BROKEN_AUTHORITY = re.compile(
    r"(?P<head>\b[A-Za-z][\w+.-]*://[^\s/?#@:]*:)(?!\d*[/?#])(?P<secret>[^\s@]+)(?=@)"
)
_BEARER = re.compile(r"(?P<head>\bhttps?://)(?P<secret>[^\s/?#@:]+)(?=@)")
_PAIR = re.compile(
    rf"(?P<head>[\w.-]*(?:{_WORDS})[\w.-]*\s*=\s*)(?P<secret>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s&;,'\"()]+)",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"(?P<head>\bpd[jm]_)(?P<secret>[A-Za-z0-9]{40})(?![A-Za-z0-9])")
_FORMS = (_AUTHORITY, _BROKEN_AUTHORITY, _BEARER, _PAIR)


class Known:
    """Known secrets of this process."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def learn(self, secrets: Iterable[str]) -> None:
        """Add secrets; they stay known when the configuration changes."""
        fresh = {secret for secret in secrets if len(secret) >= SHORTEST and secret != MASK} - self._values
        if fresh:
            self._values |= fresh
            longest_first = sorted(self._values, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(_whole, longest_first)))

    def mask(self, text: str) -> str:
        """Return the text with the known secrets masked."""
        return text if self._pattern is None else self._pattern.sub(MASK, text)


_known = Known()
learn = _known.learn
mask = _known.mask


def redact(text: str) -> str:
    """Return the text with all secrets masked, known ones and those recognised by their form."""
    text = _known.mask(text)
    if "=" in text or "@" in text:
        for form in _FORMS:
            text = form.sub(rf"\g<head>{MASK}", text)
    return _TOKEN.sub(rf"\g<head>{MASK}", text) if "pd" in text else text


def redact_option(text: str) -> str:
    """Return an option `NAME=VALUE` with its value masked if the name indicates a secret, else only secrets in it."""
    name, equals, _ = text.partition("=")
    if equals and names_a_secret(name):
        return f"{name}={MASK}"
    return redact(text)


def names_a_secret(name: str) -> bool:
    """Return whether the name of a setting or an option indicates a secret."""
    return _NAME.search(name) is not None


def secrets_in(text: str) -> Iterator[str]:
    """Yield the secrets in the value of a setting, in all spellings in which they may occur elsewhere."""
    name, equals, value = text.partition("=")
    if equals and "://" not in name and "?" not in name and names_a_secret(name):
        yield from _spellings(value)
    for form in _FORMS:
        for match in form.finditer(text):
            yield from _spellings(match["secret"])


def _spellings(secret: str) -> Iterator[str]:
    """Yield the secret as it is, unquoted, with %-escapes decoded; and its parts, as a parser may have split it."""
    bare = secret[1:-1] if secret[:1] in ("'", '"') and secret[-1:] == secret[:1] else secret
    for spelling in (secret, bare, unquote(bare), unquote_plus(bare)):
        yield spelling
        if re.search(r"[/@?#:]", spelling):
            yield from re.split(r"[/@?#:]", spelling)


def _whole(secret: str) -> str:
    """Return a pattern for the secret that does not match inside a longer word."""
    before = r"(?<![A-Za-z0-9])" if secret[0].isalnum() else ""
    after = r"(?![A-Za-z0-9])" if secret[-1].isalnum() else ""
    return before + re.escape(secret) + after
