"""Who else has an array: what may be kept without a copy, and what may be written over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec.framework import dtypes
from aexec.framework.memory import unshared
from aexec.framework.memory.allocator import CpuAllocator
from aexec.framework.memory.unshared import FORWARDED_BYTES, forwardable, is_unshared, single_references
from aexec.framework.state.tensor_cell import private_copy

SIZE = FORWARDED_BYTES // 4


def large(*shape: int) -> Any:
    return np.zeros(shape or SIZE, np.float32)


class TestUnshared:
    def test_array_held_by_the_list_alone_is_unshared(self) -> None:
        assert is_unshared([np.zeros(3)], 0)

    def test_held_elsewhere(self) -> None:
        array = np.zeros(3)
        assert not is_unshared([array], 0)
        inputs = [np.zeros(3)]
        view = inputs[0][:1]
        assert not is_unshared(inputs, 0)
        del view
        assert is_unshared(inputs, 0)

    @pytest.mark.parametrize(
        "make",
        [
            lambda: np.zeros((2, 3)).T.copy("F"),
            lambda: np.zeros(3)[1:],
            lambda: np.frombuffer(b"12345678"),
            lambda: np.float32(1),
        ],
    )
    def test_view_or_foreign_array_is_not_unshared(self, make: Any) -> None:
        assert not is_unshared([make()], 0)
        copied = private_copy(make())
        assert copied.flags.owndata
        assert copied.flags.c_contiguous
        assert is_unshared([private_copy(make())], 0)


class TestSingleReferences:
    @staticmethod
    def make(*_: Any) -> Any:
        return np.zeros(3)

    def test_single_reference_of_one_output(self) -> None:
        out = self.make()
        assert single_references(out) == (True,)
        other = out
        assert single_references(out) == (False,)
        del other
        out = out.reshape(3, 1)
        assert single_references(out) == (True,)
        view = out[1:]
        assert single_references(out) == (False,)
        del view

    def test_single_references_of_several_outputs(self) -> None:
        held = np.zeros(3)
        out = (np.zeros(3), held, np.float32(1), CpuAllocator().allocate_tensor([3], dtypes.float32), None)
        assert single_references(out) == (True, False, False, True, False)


class TestForwardable:
    def test_aligned_memory(self) -> None:
        inputs = [CpuAllocator().allocate_tensor([SIZE], dtypes.float32)]
        assert forwardable(inputs, [0]) is inputs[0]
        part = [CpuAllocator().allocate_tensor([2 * SIZE], dtypes.float32)[:SIZE]]
        assert forwardable(part, [0]) is None

    @pytest.mark.parametrize("sequence", [list, tuple])
    def test_unshared_input_is_forwardable(self, sequence: Any) -> None:
        inputs = sequence([large()])
        assert forwardable(inputs, [0]) is inputs[0]

    def test_held_elsewhere(self) -> None:
        array = large()
        assert forwardable([array], [0]) is None
        inputs = [array]
        del array
        assert forwardable(inputs, [0]) is inputs[0]
        exported = memoryview(inputs[0])
        assert forwardable(inputs, [0]) is None
        exported.release()
        assert forwardable(inputs, [0]) is inputs[0]

    def test_given_twice(self) -> None:
        array = large()
        inputs = [array, array]
        del array
        assert forwardable(inputs, [0, 1]) is None

    def test_view_of_all_of_it(self) -> None:
        inputs = [large().reshape(2, -1, 1)]
        assert inputs[0].base is not None
        assert forwardable(inputs, [0]) is inputs[0]
        other = inputs[0].reshape(-1)  # shares the memory, not the array
        assert forwardable(inputs, [0]) is None
        del other
        owner = inputs[0].base
        assert forwardable(inputs, [0]) is None
        del owner
        assert forwardable(inputs, [0]) is inputs[0]

    def test_two_views_of_one_array_are_not_forwardable(self) -> None:
        array = large(2, SIZE)
        inputs = [array[0], array.reshape(-1)]
        del array
        assert forwardable(inputs, [0]) is None
        assert forwardable(inputs, [1]) is None

    @pytest.mark.parametrize(
        "make",
        [
            lambda: large(2 * SIZE)[:SIZE],  # of a part
            lambda: large(2, SIZE).T,
            lambda: np.broadcast_to(np.float32(1), SIZE),
            lambda: np.frombuffer(bytearray(4 * SIZE), np.float32),
            lambda: large().view(np.recarray),
            lambda: large(SIZE // 2),  # small
            lambda: np.float32(1),
        ],
    )
    def test_unsuitable_array_is_not_forwardable(self, make: Any) -> None:
        assert forwardable([make()], [0]) is None

    def test_read_only(self) -> None:
        inputs = [large()]
        inputs[0].flags.writeable = False
        assert forwardable(inputs, [0]) is None

    @pytest.mark.parametrize(
        ("first", "second", "taken"),
        [
            ((4, SIZE), (4, SIZE), 0),
            ((4, SIZE), (SIZE,), 0),
            ((4, SIZE), (4, 1), 0),
            ((4, SIZE), (), 0),
            ((SIZE,), (4, SIZE), 1),
            ((4, 1), (4, SIZE), 1),
            ((1, SIZE), (SIZE,), 0),
            ((SIZE,), (1, SIZE), 1),
            ((SIZE, 1), (1, SIZE), None),
            ((4, SIZE), (1, 4, 1), None),
            ((3, SIZE), (4, SIZE), None),
        ],
    )
    def test_input_of_the_output_shape_is_forwardable(self, first: Any, second: Any, taken: int | None) -> None:
        inputs = [np.zeros(first, np.float32), np.zeros(second, np.float32)]
        found = forwardable(inputs, [0, 1])
        assert found is (None if taken is None else inputs[taken])
        if taken is not None:
            assert np.broadcast_shapes(first, second) == inputs[taken].shape

    def test_only_inputs_at_the_given_positions_are_forwardable(self) -> None:
        inputs = [large(), large()]
        assert forwardable(inputs, [1]) is inputs[1]
        assert forwardable(inputs, []) is None

    def test_approximate_counts_forward_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(unshared, "COUNTS_ARE_EXACT", False)
        assert forwardable([large()], [0]) is None
        assert not is_unshared([large()], 0)
