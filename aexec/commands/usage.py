"""What commands share: kinds of arguments, common options, and errors of usage."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from aexec.framework.duration import parse_duration

__all__ = [
    "EPILOG",
    "FILE",
    "UsageError",
    "add_command",
    "add_delegate_argument",
    "add_tags_argument",
    "add_timeout_argument",
    "delegates",
    "positive",
    "wrong",
]

EPILOG = """exit status: 0 success; 2 wrong usage; 130 interrupted; otherwise 10 + the error's canonical code,
e.g. 11 CANCELLED, 13 INVALID_ARGUMENT, 14 DEADLINE_EXCEEDED, 15 NOT_FOUND, 22 UNIMPLEMENTED, 23 INTERNAL."""

# File completion of an argument for each shell; in shtab's form, since shtab is imported only to print a script.
FILE = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}


class UsageError(Exception):
    """The arguments make no valid request: the command ends with exit status 2."""


def wrong(message: str) -> NoReturn:
    raise UsageError(message)


def add_command(commands: Any, name: str, **options: Any) -> argparse.ArgumentParser:
    """Add a command; its help ends with the exit status, after its own `epilog`."""
    epilog = options.pop("epilog", "") + EPILOG
    what: str = options["help"]
    options.setdefault("description", f"{what[0].upper()}{what[1:]}.")
    formatter = argparse.RawDescriptionHelpFormatter
    parser: argparse.ArgumentParser = commands.add_parser(name, epilog=epilog, formatter_class=formatter, **options)
    return parser


def _duration(text: str) -> float:
    """Seconds, from texts such as `2s`, `500ms`, `1m`."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def _comma_separated(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


def add_timeout_argument(command: argparse.ArgumentParser, what: str) -> None:
    command.add_argument(
        "--timeout", type=_duration, metavar="TIME", help=f"{what}, such as 2s, 500ms or 1m (default: none)"
    )


def add_tags_argument(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--tags",
        type=_comma_separated,
        default="serve",
        metavar="TAG,TAG",
        help="tags of the graph to read from a SavedModel (default: %(default)s)",
    )


def add_delegate_argument(command: argparse.ArgumentParser, *, default: str | None) -> None:
    command.add_argument(
        "--delegate",
        default=default,
        metavar="NAME|auto|none",
        help="library that runs regions of the graph: NAME, such as openvino, from the first run; auto: installed "
        "ones, where they are faster; none: no library (default: %(default)s)",
    )


def delegates(text: str) -> str | tuple[str, ...]:
    """The value of `SessionConfig.delegates` for an option `--delegate`."""
    if text == "auto":
        return text
    return () if text == "none" else _comma_separated(text)
