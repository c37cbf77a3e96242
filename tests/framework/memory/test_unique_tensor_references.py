from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from aexec.framework import errors
from aexec.framework.memory.unique_tensor_references import UniqueTensorReferences


@pytest.mark.parametrize("count", [1, 3, 4, 5, 12])
def test_each_buffer_is_kept_once(count):
    references, arrays = UniqueTensorReferences(), [np.zeros(4) for _ in range(count)]
    for array in arrays * 2 + [a[1:] for a in arrays]:
        references.add(array)
    assert len(references) == count
    kept = references.freeze()
    assert all(a is b for a, b in zip(kept, arrays, strict=True))


def test_empty_tensors_are_ignored():
    references = UniqueTensorReferences()
    references.add(np.zeros((0, 3)))
    assert references.freeze() == []


def test_nothing_is_added_once_frozen():
    references = UniqueTensorReferences()
    references.freeze()
    with pytest.raises(errors.InternalError, match="frozen"):
        references.add(np.zeros(1))
    assert repr(references) == "<UniqueTensorReferences 0 tensors, frozen>"


def test_buffers_live_until_the_references_are_dropped():
    references = UniqueTensorReferences()
    array = np.zeros(4)
    alive = weakref.ref(array)
    references.add(array[1:])
    del array
    gc.collect()
    assert alive() is not None
    del references
    gc.collect()
    assert alive() is None
