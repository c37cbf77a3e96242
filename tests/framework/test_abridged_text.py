"""Messages do not repeat what a caller sent at length."""

from __future__ import annotations

import pytest

from aexec.framework import errors
from aexec.framework.abridged_text import MAX_MESSAGE, abridged, abridged_list
from aexec.framework.shape import MAX_RANK, PartialTensorShape, shape_text


@pytest.mark.parametrize("text", ["", "abc", "x" * 200, b"abc"])
def test_short_text_is_whole(text: str | bytes) -> None:
    assert abridged(text) == (text if isinstance(text, str) else text.decode())


def test_long_text_is_cut_in_the_middle() -> None:
    shown = abridged(b"a" * 1_000_000 + b"\xffz")
    assert shown.startswith("aaa") and shown.endswith("\N{REPLACEMENT CHARACTER}z")
    assert "(1000002 long)" in shown and len(shown) < 240


def test_long_list_is_cut_behind_its_first_elements() -> None:
    assert abridged_list([1, 2, 3]) == "1, 2, 3"
    assert abridged_list(range(1000), " ").endswith("14 15 ...(1000 in all)")


def test_error_of_a_long_message_keeps_its_beginning_and_its_end() -> None:
    error = errors.InvalidArgumentError("begins" + "x" * 1_000_000 + "ends")
    assert error.message.startswith("begins") and error.message.endswith("ends")
    assert len(error.message) < MAX_MESSAGE + 100 and str(error) == error.message == error.args[0]
    error.message += "y" * 1_000_000
    assert len(error.message) < MAX_MESSAGE + 100


def test_error_names_a_node_of_a_long_name_by_its_beginning() -> None:
    error = errors.InvalidArgumentError("wrong", node="n" * 100_000)
    assert "{{node nnn" in str(error) and "(100000 long)" in str(error) and len(str(error)) < 300


def test_shape_of_very_many_sizes_is_cut() -> None:
    assert shape_text([2, None, 3]) == "[2,?,3]"
    assert shape_text(range(MAX_RANK)).endswith("252,253]")
    assert shape_text([1] * 400_000).endswith("1,1,...(400000 sizes)]")
    with pytest.raises(errors.InvalidArgumentError, match=r"\(400000 sizes\)\] is too large") as caught:
        PartialTensorShape([1] * 400_000)
    assert len(caught.value.message) < 700
