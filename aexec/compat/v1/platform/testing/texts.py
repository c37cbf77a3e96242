"""Assertions on texts, URLs, errors and the output of commands.

Next to read: `files.py`.
"""

from __future__ import annotations

import re
import subprocess
import unittest
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib import parse

from aexec.framework import errors
from aexec.framework.waiting.thrown_errors import forget_frames

__all__ = ["TextAssertions"]


class TextAssertions(unittest.TestCase):
    """Assertions on str and bytes."""

    def assertStartsWith(self, actual: Any, expected_start: Any, msg: Any = None) -> None:
        """Fail unless a text starts with another one."""
        if not actual.startswith(expected_start):
            self.fail(self._formatMessage(msg, f"{actual!r} does not start with {expected_start!r}"))

    def assertNotStartsWith(self, actual: Any, unexpected_start: Any, msg: Any = None) -> None:
        """Fail if a text starts with another one."""
        if actual.startswith(unexpected_start):
            self.fail(self._formatMessage(msg, f"{actual!r} does start with {unexpected_start!r}"))

    def assertEndsWith(self, actual: Any, expected_end: Any, msg: Any = None) -> None:
        """Fail unless a text ends with another one."""
        if not actual.endswith(expected_end):
            self.fail(self._formatMessage(msg, f"{actual!r} does not end with {expected_end!r}"))

    def assertNotEndsWith(self, actual: Any, unexpected_end: Any, msg: Any = None) -> None:
        """Fail if a text ends with another one."""
        if actual.endswith(unexpected_end):
            self.fail(self._formatMessage(msg, f"{actual!r} does end with {unexpected_end!r}"))

    def assertContainsInOrder(self, strings: Any, target: str, msg: Any = None) -> None:
        """Fail unless `target` contains the `strings` in their order; they may overlap."""
        place, last = 0, None
        for text in [strings] if isinstance(strings, str | bytes) else strings:
            found = target.find(str(text), place)
            if found < 0:
                after = "" if last is None else f" after {last!r}"
                self.fail(self._formatMessage(msg, f"Did not find {text!r}{after} in {target!r}"))
            place, last = found, text

    def assertRegexMatch(self, actual_str: Any, regexes: Any, message: Any = None) -> None:
        """Fail unless a text matches one of several regular expressions somewhere."""
        if isinstance(regexes, str | bytes) or not regexes:
            said = "regexes is string or bytes; use assertRegex instead." if regexes else "No regexes specified."
            self.fail(self._formatMessage(message, said))
        if not any(re.search(_like(regex, actual_str), actual_str, re.MULTILINE) for regex in regexes):
            said = f'"{actual_str}" does not contain any of these regexes: {regexes}.'
            self.fail(self._formatMessage(message, said))

    def assertUrlEqual(self, a: str, b: str, msg: Any = None) -> None:
        """Fail unless two URLs are equal, regardless of the order of query parameters."""
        one, other = parse.urlparse(a), parse.urlparse(b)
        for part in ("scheme", "netloc", "path", "fragment"):
            self.assertEqual(getattr(one, part), getattr(other, part), msg)
        self.assertCountEqual(one.params.split(";"), other.params.split(";"), msg)
        query, expected = (parse.parse_qs(parsed.query, keep_blank_values=True) for parsed in (one, other))
        self.assertDictEqual(query, expected, msg)

    # Errors

    def assertRaisesWithLiteralMatch(
        self,
        expected_exception: Any,
        expected_exception_message: str,
        callable_obj: Callable[..., Any] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Fail unless a call raises an error with exactly this message; without a callable, a context manager."""
        raised = self._raises_literally(expected_exception, expected_exception_message)
        if callable_obj is None:
            return raised
        with raised:
            callable_obj(*args, **kwargs)
        return None

    @contextmanager
    def _raises_literally(self, kind: Any, message: str) -> Iterator[Any]:
        with self.assertRaises(kind) as context:
            yield context
        self.assertEqual(message, str(context.exception), "Exception message does not match.")

    @contextmanager
    def assertRaisesWithPredicateMatch(self, exception_type: Any, expected_err_re_or_predicate: Any) -> Iterator[None]:
        """Context manager: fail unless the block raises an error of a type that a predicate or a regex accepts."""
        try:
            yield
        except Exception as raised:
            if not isinstance(raised, exception_type) or not _accepts(expected_err_re_or_predicate, raised):
                raise AssertionError(f"Exception of type {type(raised)}: {raised}") from raised
            forget_frames(raised)
        else:
            self.fail(f"{exception_type.__name__} not raised")

    def assertRaisesOpError(self, expected_err_re_or_predicate: Any) -> Any:
        """Context manager: fail unless the block raises an OpError that a predicate or a regex accepts."""
        return self.assertRaisesWithPredicateMatch(errors.OpError, expected_err_re_or_predicate)

    def assertRaisesIncompatibleShapesError(self, exception_type: Any = errors.InvalidArgumentError) -> Any:
        """Context manager: fail unless the block raises an error about incompatible shapes."""
        words = "Incompatible shapes|Dimensions must be equal|required broadcastable shapes"
        return self.assertRaisesWithPredicateMatch(exception_type, words)

    # Commands

    def assertCommandSucceeds(
        self,
        command: str | Sequence[str],
        regexes: Any = (b"",),
        env: Mapping[str, str] | None = None,
        close_fds: bool = True,
        msg: Any = None,
    ) -> None:
        """Fail unless a command exits with 0, and one of `regexes` matches its output.

        Args:
            command: a list of arguments, or a line for the shell.
            regexes: patterns for stdout and stderr together, as bytes.
            env: the whole environment of the command; empty by default.
        """
        code, said = _run(command, env, close_fds)
        self.assertEqual(code, 0, self._formatMessage(msg, f"{command!r} failed with {code}, and said {said!r}"))
        self.assertRegexMatch(said, regexes, msg)

    def assertCommandFails(
        self,
        command: str | Sequence[str],
        regexes: Any,
        env: Mapping[str, str] | None = None,
        close_fds: bool = True,
        msg: Any = None,
    ) -> None:
        """Fail unless a command exits with another code than 0, and one of `regexes` matches its output.

        Arguments are those of `assertCommandSucceeds`.
        """
        code, said = _run(command, env, close_fds)
        self.assertNotEqual(code, 0, self._formatMessage(msg, f"{command!r} should have failed, and said {said!r}"))
        self.assertRegexMatch(said, regexes, msg)


def _like(regex: Any, text: Any) -> Any:
    """Convert a regex to the type of the text, str or bytes."""
    if isinstance(text, str):
        return regex.decode() if isinstance(regex, bytes) else regex
    return regex.encode() if isinstance(regex, str) else regex


def _accepts(wanted: Any, raised: Exception) -> bool:
    return bool(wanted(raised) if callable(wanted) else re.search(wanted, str(raised)))


def _run(command: str | Sequence[str], env: Mapping[str, str] | None, close_fds: bool) -> tuple[int, bytes]:
    done = subprocess.run(
        command,
        shell=isinstance(command, str),
        env=dict(env or {}),
        close_fds=close_fds,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.returncode, done.stdout
