"""What can be set about a server: each setting is described once, where its field is declared.

A field of `ServerConfig` is made by `setting`.  From it come the flag of `aexec serve`, the environment variable, the
key in a file (`setting_sources.py`), the row in docs/settings.md (`settings_page.py`), and the checks.  Any other field
is for programs only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from aexec import errors
from aexec_server.settings.setting_kinds import SettingKind

__all__ = ["ENVIRONMENT_PREFIX", "Setting", "SettingError", "check_settings", "setting", "settings_of"]

ENVIRONMENT_PREFIX = "AEXEC_SERVE_"
_KEY = "setting"


class SettingError(errors.InvalidArgumentError):
    """A flag, a variable of the environment or a file says something that cannot be."""


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        field: its name in Python.
        name: the key in a file; the variable of the environment is this in capitals.
        flag: of the command line.
        kind: what values there are, and how they are written.
        help: what it is for, in a sentence without an end.
        group: under which heading it is listed.
        default: its value, if nobody gives one.
        none_word, none_means: what is written for None, and what that means; empty if it cannot be None.
        secret: its value is shown to nobody.
    """

    field: str
    name: str
    flag: str
    kind: SettingKind
    help: str
    group: str
    default: Any
    none_word: str
    none_means: str
    secret: bool

    @property
    def variable(self) -> str:
        """`AEXEC_SERVE_PORT`"""
        return ENVIRONMENT_PREFIX + self.name.upper()

    @property
    def expected(self) -> str:
        """What may be written, in words."""
        return f"{self.kind.what}, or {self.none_word}" if self.none_word else self.kind.what

    @property
    def shown_default(self) -> str:
        return self.none_means if self.default is None else self.kind.show(self.default)


def setting(
    default: Any,
    kind: SettingKind,
    help: str,
    *,
    group: str,
    name: str = "",
    flag: str = "",
    none: tuple[str, str] = ("", ""),
    secret: bool = False,
) -> Any:
    """A field of `ServerConfig` that can be set from outside.  Arguments as the attributes of `Setting`.

    Args:
        name: if it is not that of the field.
        flag: if it is not the name's.
        none: the word for None and what it means, where it can be None.
    """
    described = {
        "kind": kind,
        "help": help,
        "group": group,
        "name": name,
        "flag": flag,
        "default": default,
        "none_word": none[0],
        "none_means": none[1],
        "secret": secret,
    }
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata={_KEY: described})
    return dataclasses.field(default=default, metadata={_KEY: described}, repr=not secret)


@cache
def settings_of(config: Callable[..., Any]) -> Mapping[str, Setting]:
    """Name → setting, in the order in which they are declared.

    Args:
        config: a dataclass.
    """
    settings = {}
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        described = field.metadata.get(_KEY)
        if described is not None:
            name = described["name"] or field.name
            flag = described["flag"] or "--" + name.replace("_", "-")
            settings[name] = Setting(field=field.name, **{**described, "name": name, "flag": flag})
    return settings


def check_settings(config: Any) -> None:
    """Raise InvalidArgumentError for the first field whose value is none of its kind."""
    for one in settings_of(type(config)).values():  # type: ignore[arg-type]
        value = getattr(config, one.field)
        if value is None and one.none_word:
            continue
        if not one.kind.check(value):
            alternative = " or None" if one.none_word else ""
            shown = "another value" if one.secret else repr(value)
            raise errors.InvalidArgumentError(f"{one.field}: expected {one.kind.in_python}{alternative}, got {shown}")
