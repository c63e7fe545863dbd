"""Options that a command takes as one argument: those that set settings, and those that several commands share.

Log = Annotated[list[Flag], OptionGroup({"--log-level": SettingOption("log.level", "LEVEL", "debug or info.")})]

@takes_groups
def broker(*, log: Log) -> None: ...        # has the option --log-level; `log` has a Flag if it was given
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Annotated, Any, NamedTuple

import typer

from polydomo.server.config import Flag
from polydomo.server.setting_keys import KEYS


class SettingOption(NamedTuple):
    """An option that sets a setting. It is repeatable if the setting is a list, and takes no value if it is a flag."""

    key: str
    metavar: str | None
    help: str

    def parameter(self, flag: str) -> Parameter:
        """Return the parameter of a command that has this option."""
        key = KEYS[self.key]
        is_flag = key.unit == "flag"
        kind: Any = bool if is_flag else list[str] | None if key.many else str | None
        option = typer.Option(flag, metavar=self.metavar, help=self.help)
        name = flag.removeprefix("--").replace("-", "_")
        default = False if is_flag else None
        return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _flags_only(flags: list[Flag]) -> list[Flag]:
    return flags


class OptionGroup:
    """Options that set settings, by flag, and the options that are further parameters of `make`.

    The command's argument is what `make` returns for the flags that were given and for the other options.
    """

    def __init__(self, settings: Mapping[str, SettingOption], make: Callable[..., Any] = _flags_only) -> None:
        self.settings = {
            option.parameter(flag): Flag(flag, option.key, None) for flag, option in settings.items()
        }
        self.others = list(inspect.signature(make, eval_str=True).parameters.values())[1:]
        self.make = make

    def take(self, given: dict[str, Any]) -> Any:
        """Remove the group's options from those of a command, and return the command's argument."""
        values = [(flag, given.pop(parameter.name)) for parameter, flag in self.settings.items()]
        flags = [flag._replace(value=value) for flag, value in values if value]
        return self.make(flags, **{parameter.name: given.pop(parameter.name) for parameter in self.others})


def takes_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all options of the groups among its parameters, in their place."""
    groups: dict[str, OptionGroup] = {}
    parameters: list[Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        metadata = getattr(parameter.annotation, "__metadata__", [None])[0]
        if isinstance(metadata, OptionGroup):
            groups[parameter.name] = metadata
            parameters += [*metadata.settings, *metadata.others]
        else:
            parameters.append(parameter)

    @functools.wraps(command)
    def run(**given: Any) -> None:
        command(**{name: group.take(given) for name, group in groups.items()}, **given)

    # Typer reads the options from the signature.
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters]
    )
    return run
