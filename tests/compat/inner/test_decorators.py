"""Decorators of functions, and what they warn of."""

from __future__ import annotations

import inspect
import logging
from typing import Any

import pytest

from aexec.compat.v1.inner import decorators, deprecation, tf_inspect


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was warned of, after `From FILE:LINE: `."""
    found = [record.getMessage().split(": ", 1) for record in caplog.records if record.levelno == logging.WARNING]
    assert all(place.startswith(f"From {__file__}:") for place, _ in found)
    caplog.clear()
    return [text for _, text in found]


def test_deprecated_functions(caplog: pytest.LogCaptureFixture) -> None:
    @deprecation.deprecated("2018-01-01", "use g")
    def f(x: int) -> int:
        """Doc."""
        return x

    assert (f(1), f(2), f.__name__) == (1, 2, "f")
    (text,) = warned(caplog)
    assert text.endswith("is deprecated and will be removed after 2018-01-01.\nInstructions for updating:\nuse g")
    assert f.__doc__ is not None and f.__doc__.startswith(
        "Doc. (deprecated)\n\nDeprecated: THIS FUNCTION IS DEPRECATED."
    )
    always = deprecation.deprecated(None, "use g", warn_once=False)(len)
    assert always([1]) == always([2]) == 1
    assert len(warned(caplog)) == 2
    with deprecation.silence():
        always([1])
    assert not warned(caplog)


def test_deprecated_arguments(caplog: pytest.LogCaptureFixture) -> None:
    @deprecation.deprecated_args(None, "use b", "a", ("c", None))
    def h(a: Any = None, b: Any = None, c: Any = None) -> Any:
        return a, b, c

    assert h(b=2) == (None, 2, None) and h(c=None) == (None, None, None)
    assert not warned(caplog)
    assert h(1, c=1) == (1, None, 1) and h(a=2) == (2, None, None)
    texts = warned(caplog)
    assert [text.partition(" is deprecated")[0].rpartition(" ")[2] for text in texts] == ["a", "c"]

    @deprecation.deprecated_arg_values("2020-02-02", "no", a=3)
    def k(a: int = 1) -> int:
        return a

    assert k(2) == 2 and not warned(caplog)
    assert k(3) == 3 and " with a=3 is deprecated" in warned(caplog)[0]
    with pytest.raises(TypeError):
        h(z=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match=r"not present in the function signature: \['zz'\]"):
        deprecation.deprecated_args(None, "i", "zz")(h)


def test_what_a_warning_needs() -> None:
    with pytest.raises(ValueError, match=r"Date must be in format YYYY-MM-DD. Received: x"):
        deprecation.deprecated("x", "y")
    with pytest.raises(ValueError, match="conversion instructions"):
        deprecation.deprecated("2018-01-01", "")


def test_old_names(caplog: pytest.LogCaptureFixture) -> None:
    lookup = deprecation.deprecated_argument_lookup
    assert lookup("n", None, "o", 3) == 3 and lookup("n", 4, "o", None) == 4
    with pytest.raises(ValueError, match="Cannot specify both 'o' and 'n'"):
        lookup("n", 1, "o", 3)
    assert deprecation.deprecated_alias("old", "new", len)([1]) == 1
    kind = deprecation.deprecated_alias("Old", "New", dict)
    assert isinstance(kind(a=1), dict) and len(warned(caplog)) == 2
    assert deprecation.deprecated_endpoints("a")(len) is len


def test_decorators_that_change_nothing() -> None:
    assert decorators.tf_export("a.b", v1=["c"])(len) is decorators.should_use_result(len) is len
    assert decorators.should_use_result(warn_in_eager=True)(len) is len


def test_wrapped_functions() -> None:
    def inner(a: int, *rest: int, b: int = 2, **more: int) -> int:
        """Words."""
        return a + b

    def outer(*args: Any, **kwargs: Any) -> Any:
        return -inner(*args, **kwargs)

    made = decorators.make_decorator(inner, outer)
    assert made(1) == -3 and made.__doc__ == "Words." and decorators.unwrap(made) == ([outer], inner)
    assert tf_inspect.getfullargspec(made) == inspect.getfullargspec(inner)
    assert tf_inspect.getargspec(made) == (["a"], "rest", "more", None)
    assert tf_inspect.isfunction(made) and tf_inspect.signature is inspect.signature
    assert decorators.unwrap(decorators.rewrap(made, inner, len))[1] is len
    assert decorators.rewrap(inner, inner, len) is len


def test_modules_that_load_when_used() -> None:
    names: dict[str, Any] = {}
    loader = names["wave"] = decorators.LazyLoader("wave", names, "wave")
    assert loader.open and names["wave"] is not loader and "open" in dir(loader)
