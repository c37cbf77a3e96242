"""Looking variables up by handle: remembered, but never beyond the variable's removal."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

from aexec.framework import dtypes, errors
from aexec.framework.state.resource_manager import ResourceHandle, ResourceManager, make_handle_tensor
from aexec.framework.state.resource_variable import ResourceVariable, VariableLookup


def handle() -> Any:
    return make_handle_tensor(ResourceHandle(container="c", name="v"))


def manager_with(value: float) -> ResourceManager:
    manager = ResourceManager()
    manager.create("c", "v", ResourceVariable(dtypes.float32, np.float32(value)))
    return manager


class TestVariableLookup:
    def test_same_variable_as_long_as_it_is_there(self) -> None:
        lookup, manager, tensor = VariableLookup(), manager_with(1), handle()
        variable = lookup(manager, tensor)
        assert lookup(manager, tensor) is variable is manager.find("c", "v", ResourceVariable)

    def test_variable_that_is_made_anew_is_found(self) -> None:
        lookup, manager, tensor = VariableLookup(), manager_with(1), handle()
        held = lookup(manager, tensor)
        manager.delete("c", "v", ResourceVariable)
        with pytest.raises(errors.NotFoundError):
            lookup(manager, tensor)
        manager.create("c", "v", ResourceVariable(dtypes.float32, np.float32(2)))
        assert lookup(manager, tensor).value == 2
        manager.clear()
        with pytest.raises(errors.NotFoundError):
            lookup(manager, tensor)
        assert held.closed

    def test_removed_variable_is_not_kept(self) -> None:
        lookup, manager, tensor = VariableLookup(), manager_with(1), handle()
        alive = weakref.ref(lookup(manager, tensor))
        manager.cleanup("c")
        assert alive() is None

    def test_each_manager_has_its_own(self) -> None:
        lookup, tensor = VariableLookup(), handle()
        one, two = manager_with(1), manager_with(2)
        assert [lookup(m, tensor).value.item() for m in (one, two, one)] == [1, 2, 1]

    def test_handle_that_can_be_changed_is_looked_at_each_time(self) -> None:
        lookup, manager = VariableLookup(), manager_with(1)
        manager.create("c", "w", ResourceVariable(dtypes.float32, np.float32(2)))
        tensor = handle().copy()
        assert lookup(manager, tensor).value == 1
        tensor[()] = ResourceHandle(container="c", name="w")
        assert lookup(manager, tensor).value == 2
        tensor[()] = "no handle"
        with pytest.raises(errors.InvalidArgumentError, match="expected a resource handle, got str"):
            lookup(manager, tensor)
