"""The tensors of a session and of a step: handles, what is saved, limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec.framework import errors
from aexec.framework.state.session_state import TENSOR_HANDLE_TYPE_NAME, SessionState, TensorStore, tensor_handle

CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


def test_handles() -> None:
    handle = tensor_handle("h", 3, CPU)
    assert handle.name == handle.container == f"h;3;{CPU}"
    assert handle.type_name == TENSOR_HANDLE_TYPE_NAME == "TensorHandle"


class TestSessionState:
    def test_ids_count_from_zero(self) -> None:
        state = SessionState()
        assert [state.get_new_id() for _ in range(3)] == [0, 1, 2]

    def test_add_get_delete(self) -> None:
        state = SessionState()
        state.add_tensor("a", np.zeros(3, np.float32))
        assert state.get_tensor("a").tolist() == [0, 0, 0]
        assert not state.get_tensor("a").flags.writeable
        assert (state.num_bytes, list(state.tensors())) == (12, ["a"])
        with pytest.raises(errors.InvalidArgumentError, match="Failed to add a tensor with handle 'a'"):
            state.add_tensor("a", np.zeros(1))
        state.delete_tensor("a")
        assert repr(state) == "<SessionState 0 tensors, 0 bytes>"
        with pytest.raises(errors.InvalidArgumentError, match="The tensor with handle 'a' is not in the session store"):
            state.get_tensor("a")
        with pytest.raises(errors.InvalidArgumentError, match="Failed to delete a tensor with handle 'a'"):
            state.delete_tensor("a")

    def test_limit(self) -> None:
        state = SessionState(limit=10)
        state.add_tensor("a", np.zeros(8, np.int8))
        with pytest.raises(errors.ResourceExhaustedError, match="3 more would exceed the 10"):
            state.add_tensor("b", np.zeros(3, np.int8))
        state.delete_tensor("a")
        state.add_tensor("b", np.zeros(10, np.int8))
        state.clear()
        assert state.num_bytes == 0


class TestTensorStore:
    def test_only_fetched_tensors_are_saved(self) -> None:
        store, state = TensorStore(), SessionState()
        store.add_tensor("a", np.zeros(1), "a;0;d")
        store.add_tensor("b", np.ones(1), "b;1;d")
        store.save_tensors(["x:0", "b:0", "b"], state)
        assert list(state.tensors()) == ["b;1;d"]

    def test_second_tensor_of_a_node_is_refused(self) -> None:
        store = TensorStore()
        store.add_tensor("a", np.zeros(1), "a;0;d")
        with pytest.raises(errors.InvalidArgumentError, match="Failed to add a tensor with name 'a'"):
            store.add_tensor("a", np.zeros(1), "a;1;d")

    def test_copied_only_if_somebody_else_has_it(self) -> None:
        def saved(value: Any) -> Any:
            store, state = TensorStore(), SessionState()
            store.add_tensor("a", value, "a")
            del value
            store.save_tensors(["a:0"], state)
            return state.get_tensor("a")

        values = [np.zeros(100)]
        address = values[0].ctypes.data
        adopted = saved(values.pop())
        assert adopted.ctypes.data == address
        held = np.zeros(100)
        kept = saved(held)
        held[0] = 1
        assert kept[0] == 0

    def test_tensors_are_saved_all_or_none(self) -> None:
        store, state = TensorStore(), SessionState(limit=10)
        for name in "ab":
            store.add_tensor(name, np.zeros(8, np.int8), name)
        with pytest.raises(errors.ResourceExhaustedError):
            store.save_tensors("ab", state)
        assert not state.tensors()


def test_strings_count_against_the_limit() -> None:
    state, text = SessionState(limit=1000), np.array([b"x" * 900], object)
    state.add_tensor("a", text)
    assert state.num_bytes == 908
    with pytest.raises(errors.ResourceExhaustedError):
        state.add_tensor("b", np.array([b"x" * 100], object))
    state.delete_tensor("a")
    assert state.num_bytes == 0
