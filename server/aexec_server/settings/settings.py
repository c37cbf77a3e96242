"""Describes settings: each setting is described once, where its field of `ServerConfig` is declared with `setting`.

The description gives the flag of `aexec serve`, the environment variable, the key in a file (`setting_sources.py`), the
row in docs/settings.md (`settings_page.py`), and the checks. A field declared without `setting` can be set only by
programs.
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
    """A flag, an environment variable or a file gives a value that a setting cannot have, or an unknown name."""


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        field: name of its field in `ServerConfig`.
        name: key in a file; in capitals, the end of the environment variable.
        flag: on the command line.
        kind: which values there are, and how they are written.
        help: what it is for, as a sentence without a full stop.
        group: heading under which it is listed.
        default: value that it has unless another is given.
        none_word, none_means: how None is written, and what it means; empty if None is not allowed.
        secret: never show its value.
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
        """Environment variable, such as `AEXEC_SERVE_PORT`."""
        return ENVIRONMENT_PREFIX + self.name.upper()

    @property
    def expected(self) -> str:
        """Description of the values that may be written."""
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
    """Declare a field of `ServerConfig` that can be set from outside.  Arguments are as the attributes of `Setting`.

    Args:
        name: default: the field's name.
        flag: default: made from the name.
        none: how None is written and what it means, where None is allowed.
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
    """Return name → setting, in the order of declaration.

    Args:
        config: a dataclass whose fields are made by `setting`.
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
    """Raise InvalidArgumentError for the first field whose value is not of the field's kind."""
    for one in settings_of(type(config)).values():  # type: ignore[arg-type]
        value = getattr(config, one.field)
        if value is None and one.none_word:
            continue
        if not one.kind.check(value):
            alternative = " or None" if one.none_word else ""
            shown = "another value" if one.secret else repr(value)
            raise errors.InvalidArgumentError(f"{one.field}: expected {one.kind.in_python}{alternative}, got {shown}")
