"""`tf.logging`: TensorFlow's names of a logger of Python's, `tensorflow`, which shows warnings at first.

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
    """From which level on messages are shown."""
    return _logger.getEffectiveLevel()


def set_verbosity(v: Any) -> None:
    """Show messages from a level on, on standard error where the program has not said where."""
    if not _logging.getLogger().handlers and not _logger.handlers:
        handler = _logging.StreamHandler()
        handler.setFormatter(_logging.Formatter("%(levelname)s:%(name)s:%(message)s"))
        _logger.addHandler(handler)
    _logger.setLevel(v)


def flush() -> None:
    """Nothing: handlers flush themselves."""


def log_if(level: int, msg: str, condition: Any, *args: Any) -> None:
    """Log if a condition holds."""
    if condition:
        _logger.log(level, msg, *args)


def log_first_n(level: int, msg: str, n: int, *args: Any) -> None:
    """Log only the first times."""
    _counts[msg] += 1
    log_if(level, msg, _counts[msg] <= n, *args)


def log_every_n(level: int, msg: str, n: int, *args: Any) -> None:
    """Log the first of each `n` times."""
    log_if(level, msg, _counts[msg] % n == 0, *args)
    _counts[msg] += 1
