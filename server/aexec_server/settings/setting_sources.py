"""Reads settings from flags, environment variables and a file; the first of these that gives a value wins over the
default.

    parser = ...; add_setting_flags(parser)
    given = read_settings(parser.parse_args(), os.environ)
    ServerConfig(**given.values)

A value replaces the whole value of the later sources; mappings of names to paths are not merged.
"""

from __future__ import annotations

import argparse
import json
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aexec import errors
from aexec_server.settings.model_settings import unknown_key
from aexec_server.settings.server_config import ServerConfig
from aexec_server.settings.settings import ENVIRONMENT_PREFIX, Setting, SettingError, settings_of

__all__ = ["GivenSettings", "add_setting_flags", "read_settings"]

_CONFIG_VARIABLE = ENVIRONMENT_PREFIX + "CONFIG"
_MAX_VALUE = 200


@dataclass(frozen=True, slots=True)
class GivenSettings:
    """Settings that are given, with their sources.

    Attributes:
        values: field of `ServerConfig` → value.
        origins: field → the flag, variable or file that gave the value.
    """

    values: Mapping[str, Any]
    origins: Mapping[str, str]

    def describe(self, config: ServerConfig) -> str:
        """Return all settings of a configuration as a file for `--config`, each with its origin.

        Secrets are left out.
        """
        lines = ["# aexec serve --config FILE"]
        group = ""
        for one in settings_of(ServerConfig).values():
            if one.group != group:
                group = one.group
                lines += ["", f"# {group}"]
            origin = self.origins.get(one.field, "default")
            value = getattr(config, one.field)
            if one.secret:
                lines.append(
                    f"# {one.name} is secret, and {'set' if one.field in self.origins else 'not set'}: {origin}"
                )
                continue
            written = one.none_word if value is None else one.kind.encode(value)
            lines.append(f"{one.name} = {_toml(written)}  # {origin}")
        return "\n".join(lines)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    return json.dumps(value)


def add_setting_flags(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each setting, under the heading of its group, and `--config`."""
    group, title = parser.add_argument_group("configuration"), ""
    group.add_argument(
        "--config", metavar="FILE", help="TOML file to read settings from (docs/settings.md; default: none)"
    )
    for one in settings_of(ServerConfig).values():
        if one.group != title:
            title = one.group
            group = parser.add_argument_group(title)
        values = f"{one.expected}; " if one.kind.has_bounds else ""
        text = f"{one.help} ({values}default: {one.shown_default})".replace("%", "%%")
        one.kind.add_flags(group, one.flag, one.field, text)


def read_settings(arguments: argparse.Namespace, environment: Mapping[str, str]) -> GivenSettings:
    """Read the settings that were given, from the strongest source that has each.

    Args:
        arguments: of a parser with `add_setting_flags`.
        environment: as `os.environ`.

    Raises:
        SettingError: a setting has a value that it cannot have, or a name is unknown.
        NotFoundError: the file does not exist.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    path = arguments.config or environment.get(_CONFIG_VARIABLE)
    for source in (
        _from_file(Path(path)) if path else [],
        _from_environment(environment),
        _from_flags(arguments),
    ):
        for one, value, origin in source:
            values[one.field] = value
            origins[one.field] = origin
    return GivenSettings(values, origins)


_Found = list[tuple[Setting, Any, str]]


def _from_flags(arguments: argparse.Namespace) -> _Found:
    found: _Found = []
    for one in settings_of(ServerConfig).values():
        given = _told(one.flag, lambda one=one: one.kind.from_flags(arguments, one.field))  # type: ignore[misc]
        if given is not None:
            found.append((one, _decoded(one, given, one.flag, Path()), one.flag))
    return found


def _from_environment(environment: Mapping[str, str]) -> _Found:
    by_variable = {one.variable: one for one in settings_of(ServerConfig).values()}
    found: _Found = []
    for variable in sorted(environment):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable == _CONFIG_VARIABLE:
            continue
        one = by_variable.get(variable)
        if one is None:
            raise SettingError(f"environment: {unknown_key(variable, by_variable)}")
        given = _told(variable, lambda one=one, text=environment[variable]: one.kind.from_text(text))  # type: ignore[misc]
        found.append((one, _decoded(one, given, variable, Path()), variable))
    return found


def _from_file(path: Path) -> _Found:
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise errors.NotFoundError(f"{path}; {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path} is no TOML file: {error}") from None
    settings = settings_of(ServerConfig)
    for key in table:
        if key not in settings:
            raise SettingError(f"{path}: {unknown_key(key, settings)}")
    return [
        (settings[key], _decoded(settings[key], value, f"{path}: {key}", path.parent), str(path))
        for key, value in table.items()
    ]


def _decoded(one: Setting, given: object, origin: str, folder: Path) -> Any:
    if one.none_word and given == one.none_word:
        return None
    shown = "another value" if one.secret else repr(given)[:_MAX_VALUE]
    return _told(origin, lambda: one.kind.decode(given, folder), f"expected {one.expected}, got {shown}")


def _told(origin: str, call: Callable[[], Any], otherwise: str = "") -> Any:
    """Call, and turn a ValueError into a SettingError that names the origin of the value."""
    try:
        return call()
    except ValueError as error:
        raise SettingError(f"{origin}: {str(error) or otherwise}") from None
