"""`tf.logging`: TensorFlow's names for the Python logger `tensorflow`, which shows warnings by default.

Next to read: Python's own `logging`.
"""

from __future__ import annotations

import logging as _logging
from collections import Counter
from typing import Any

__all__ = [
    "DEBUG",
    "ERROR",
    "FATAL",
    "INFO",
    "WARN",
    "debug",
    "error",
    "fatal",
    "flush",
    "get_logger",
    "get_verbosity",
    "info",
    "log",
    "log_every_n",
    "log_first_n",
    "log_if",
    "set_verbosity",
    "vlog",
    "warn",
    "warning",
]

DEBUG, INFO, WARN, ERROR, FATAL = (
    _logging.DEBUG,
    _logging.INFO,
    _logging.WARNING,
    _logging.ERROR,
    _logging.CRITICAL,
)

_logger = _logging.getLogger("tensorflow")
_counts: Counter[str] = Counter()

debug, info, warning, error = _logger.debug, _logger.info, _logger.warning, _logger.error
warn, fatal, log = _logger.warning, _logger.critical, _logger.log
vlog = _logger.log


def get_logger() -> _logging.Logger:
    """`tf.get_logger`."""
    return _logger


def get_verbosity() -> int:
    """The lowest level that is shown."""
    return _logger.getEffectiveLevel()


def set_verbosity(v: Any) -> None:
    """Show messages from a level on, on standard error unless the program has configured handlers."""
    if not _logging.getLogger().handlers and not _logger.handlers:
        handler = _logging.StreamHandler()
        handler.setFormatter(_logging.Formatter("%(levelname)s:%(name)s:%(message)s"))
        _logger.addHandler(handler)
    _logger.setLevel(v)


def flush() -> None:
    """Does nothing: handlers flush themselves."""


def log_if(level: int, msg: str, condition: Any, *args: Any) -> None:
    """Log if a condition holds."""
    if condition:
        _logger.log(level, msg, *args)


def log_first_n(level: int, msg: str, n: int, *args: Any) -> None:
    """Log only the first `n` times."""
    _counts[msg] += 1
    log_if(level, msg, _counts[msg] <= n, *args)


def log_every_n(level: int, msg: str, n: int, *args: Any) -> None:
    """Log the first of every `n` times."""
    log_if(level, msg, _counts[msg] % n == 0, *args)
    _counts[msg] += 1
