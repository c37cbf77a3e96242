"""Words for names that are not there."""

from __future__ import annotations

import pytest

from aexec.framework.near_names import listed, near_names


@pytest.mark.parametrize(
    ("name", "names", "words"),
    [
        ("imge", ["image", "size"], "; did you mean 'image'?"),
        ("image_2", ["image_1", "image_3", "z"], "; did you mean 'image_3', 'image_1'?"),
        ("z", ["image"], ""),
        ("z", [], ""),
        ("x" * 1000, ["x" * 999], ""),
    ],
)
def test_near_names(name: str, names: list[str], words: str) -> None:
    assert near_names(name, names) == words


def test_near_names_of_many_are_of_about_that_length() -> None:
    names = [f"layer_{i}/kernel" for i in range(10_000)]
    assert "'layer_4711/kernel'" in near_names("layer_4711/kernl", names)
    assert near_names("layer_4711/kernel/of/adam", names) == ""


def test_listed() -> None:
    assert listed(()) == "none"
    assert listed({"b": 1, "a": 2}) == "b, a"
    assert listed(["x" * 1000]) == "x" * 200
    assert listed([str(i) for i in range(60)]).endswith("48, 49 and 10 others")
