"""Triton's calls for settings and shared memory: what they return, and what they refuse.

Traces are requested with a run or exported by OpenTelemetry, the log is configured at the start of the server, and
memory is never shared with clients. So settings can be read, and set only to the values that they have.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from aexec import errors

__all__ = [
    "change_log_settings",
    "change_trace_settings",
    "check_region",
    "refuse_region",
]

_TRACES = {"trace_level": ["OFF"]}


def change_trace_settings(given: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the settings after a change. Clearing a setting (no values) has no effect.

    Raises:
        UnimplementedError: a setting would differ from what it is.
    """
    for name, values in given.items():
        if values and list(values) != _TRACES.get(name):
            raise errors.UnimplementedError(
                f"trace setting '{name[:80]}' cannot be changed: ask for the trace of a run with the run, or let the "
                "server export traces by OpenTelemetry"
            )
    return dict(_TRACES)


def _log_settings() -> dict[str, str | bool | int]:
    """Return the settings of the log by name."""
    level = logging.getLogger("aexec_server").getEffectiveLevel()
    return {
        "log_file": "",
        "log_info": level <= logging.INFO,
        "log_warning": level <= logging.WARNING,
        "log_error": level <= logging.ERROR,
        "log_verbose_level": int(level <= logging.DEBUG),
        "log_format": "default",
    }


def change_log_settings(given: Mapping[str, object]) -> dict[str, str | bool | int]:
    """Return the settings after a change.

    Raises:
        InvalidArgumentError: there is no such setting.
        UnimplementedError: a setting would differ from what it is.
    """
    settings = _log_settings()
    for name, value in given.items():
        if name not in settings:
            raise errors.InvalidArgumentError(
                f"unknown log setting '{name[:80]}'; expected some of {', '.join(settings)}"
            )
        if type(value) is not type(settings[name]) or value != settings[name]:
            raise errors.UnimplementedError(
                f"log setting '{name}' cannot be changed: it is set where the server is started"
            )
    return settings


def check_region(kind: str, name: str) -> None:
    """Raise NotFoundError for the name of a region, because none can be registered; accept "", which means all regions.

    Args:
        kind: `system` or `cuda`.
    """
    if name:
        raise errors.NotFoundError(f"Unable to find {kind} shared memory region: '{name[:80]}'")


def refuse_region(kind: str, name: str) -> errors.UnimplementedError:
    """Return the error for a request to register a region."""
    return errors.UnimplementedError(
        f"failed to register {kind} shared memory region '{name[:80]}': this server reads no memory of its clients; "
        "send tensors in requests"
    )
