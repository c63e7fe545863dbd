"""Profiles: where a broker is, and the keys and token for it, under a name.

Profiles are in `polydomo/profiles.json` in the user's configuration folder (`XDG_CONFIG_HOME`, else `~/.config`), a
file that only the user can read; `polydomo profile` changes them. A profile applies if it is named (`profile=`,
`--profile`, `POLYDOMO_PROFILE`), and then fills in all that neither the URL nor the environment says. Without a name,
the profile of `polydomo profile use` applies, but only to the broker that it is for: its credentials are not meant for
other URLs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from polydomo import private_files
from polydomo.errors import ConfigError

log = logging.getLogger("polydomo.sdk")

# The environment variable with a profile's name.
VARIABLE: Final = "POLYDOMO_PROFILE"


class Profile(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One profile. Parts that are not set come from the environment, or are not needed."""

    url: str = ""
    server_key: str = ""  # the broker's public key
    key: str = ""  # the file with the own key pair
    http: str = ""  # URL of the REST API
    token: str = ""  # for the REST API


class _Content(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    profiles: dict[str, Profile] = {}
    current: str = ""


class ProfileFile:
    """The profiles of one user. Errors are ConfigErrors, which do not quote the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._content = self._read()

    @property
    def current(self) -> str:
        """Name of the profile in use; empty: none."""
        return self._content.current

    @property
    def all(self) -> Mapping[str, Profile]:
        """All profiles by name."""
        return self._content.profiles

    def get(self, name: str) -> Profile:
        """Return the profile of this name."""
        found = self._content.profiles.get(name)
        if found is None:
            known = ", ".join(self._content.profiles) or "none"
            raise ConfigError(
                f"there is no profile {name!r} in {self.path}",
                hint=f"known: {known}; see 'polydomo profile ls'",
            )
        return found

    def set(self, name: str, profile: Profile) -> None:
        """Add or replace a profile."""
        self._content.profiles[name] = profile
        self._write()

    def remove(self, name: str) -> None:
        """Remove a profile."""
        self.get(name)
        del self._content.profiles[name]
        if self._content.current == name:
            self._content.current = ""
        self._write()

    def use(self, name: str) -> None:
        """Let a profile apply where none is named; empty: none."""
        if name:
            self.get(name)
        self._content.current = name
        self._write()

    def _read(self) -> _Content:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return _Content()
        except OSError as error:
            raise ConfigError(
                f"cannot read the profiles in {self.path}: {error.strerror}", hint=""
            ) from error
        to = private_files.open_to(self.path)
        if to:
            log.warning("the profiles in %s can be read by %s: chmod 600 %s", self.path, to, self.path)
        try:
            return msgspec.json.decode(data, type=_Content)
        except ValueError:  # msgspec's errors are ValueErrors, and quote the file
            raise ConfigError(
                f"{self.path} is damaged", hint="repair it, or remove it and add the profiles again"
            ) from None

    def _write(self) -> None:
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            private_files.make_folder(self.path.parent)
            private_files.make_file(temporary)
            try:
                temporary.write_bytes(msgspec.json.format(msgspec.json.encode(self._content)) + b"\n")
                private_files.sync(temporary)
                temporary.replace(self.path)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(
                f"cannot write the profiles to {self.path}: {error.strerror}", hint=""
            ) from error


def profile_file() -> ProfileFile:
    """Return this user's profiles."""
    return ProfileFile(_default_path())


def choose(name: str | None, url: str) -> Profile:
    """Return the profile for a URL; empty: none was given. Without a profile that applies, return one without values.

    `name`: of the profile; default: the environment's `POLYDOMO_PROFILE`, else the one in use.
    """
    name = name or os.environ.get(VARIABLE, "")
    if not name and not _default_path().exists():
        return Profile()
    profiles = profile_file()
    if name:
        return profiles.get(name)
    current = profiles.all.get(profiles.current, Profile())
    return current if not url or _place(url) == _place(current.url) else Profile()


def _place(url: str) -> str:
    """Return the part of a URL that says where the broker is, without the dialect and parameters."""
    return url.strip().partition("://")[2].partition("?")[0].rstrip("/")


def _default_path() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "polydomo" / "profiles.json"
