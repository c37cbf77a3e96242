"""JSON in pieces: together they are what is written at once, and each is small."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from aexec_server.http.json_style import JsonStyle
from aexec_server.http.json_text import array_pieces, array_text, value_pieces
from aexec_server.requests.tensors import people_pieces, people_text, v2_pieces, v2_text

from aexec.framework import dtypes

MOST = 1 << 16

VALUES: dict[str, Any] = {
    "small": {"a": [1, None, True, "é"], "b": {}},
    "empty": [],
    "number": 3,
    "long text": 'a"\\é\U0001f600\n' * 30_000,
    "long list": list(range(50_000)),
    "long object": {f"key {number}": [number] for number in range(5000)},
    "nested": {"nodes": [{"name": f"n{i}", "inputs": ["x"] * (3000 if i == 7 else 2)} for i in range(2000)]},
    "infinite": [float("inf"), float("-inf")] * 5000,
}


@pytest.mark.parametrize("name", VALUES)
def test_value_in_pieces(name: str) -> None:
    value = VALUES[name]
    pieces = list(value_pieces(value))
    assert "".join(pieces) == json.dumps(value, separators=(",", ":")) and max(map(len, pieces)) <= 4 * MOST


def test_items_are_made_when_it_is_their_turn() -> None:
    made = []
    items = ({"item": made.append(number)} for number in range(1000))  # type: ignore[func-returns-value]  # it is null
    pieces = value_pieces({"name": "n", "items": items, "none": iter(())})
    while not made:
        next(pieces)
    assert len(made) < 510  # values, which are written together
    assert "".join(pieces).endswith('{"item":null}],"none":[]}')


@pytest.mark.parametrize("style", [None, JsonStyle(nan="null"), JsonStyle(int64_as_string=True)], ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (20_000,), (40, 500), (2, 10_000), (2, 0, 3), (30_000, 1)])
def test_array_in_pieces(shape: tuple[int, ...], style: JsonStyle | None) -> None:
    numbers = np.arange(np.prod(shape, dtype=int))
    for array in (numbers.reshape(shape), np.where(numbers % 7, numbers / 3, np.nan).reshape(shape)):
        pieces = list(array_pieces(array, style))
        text = "".join(pieces)
        assert text.replace(" ", "") == array_text(array, style).replace(" ", "") and max(map(len, pieces)) <= MOST
        if style is None:
            assert np.array_equal(np.array(json.loads(text), array.dtype).reshape(shape), array, equal_nan=True)


@pytest.mark.parametrize("shape", [(), (0,), (2000,), (50, 40), (1, 2, 1000)])
def test_strings_in_pieces(shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape))
    array = np.empty(count, object)
    array[:] = [[b"ab", b"\xff\x00", b"a" * 3000, "é\n".encode()][number % 4] for number in range(count)]
    array = array.reshape(shape)
    assert "".join(v2_pieces(array, dtypes.string)) == v2_text(array, dtypes.string)
    assert "".join(people_pieces(array, dtypes.string)) == people_text(array, dtypes.string)
