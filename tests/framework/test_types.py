from __future__ import annotations

import numpy as np
import pytest

from aexec.framework import dtypes, errors, types
from aexec.framework.types import DeviceType, FrameAndIter, MemoryType, TypeIndex


def test_device_types_are_strings_with_a_priority():
    assert types.DEVICE_GPU == "GPU"
    assert types.DEVICE_GPU.priority > types.DEVICE_CPU.priority
    assert repr(types.DEVICE_CPU) == "DeviceType('CPU', priority=70)"
    known = types.device_types()
    assert known.index(types.DEVICE_GPU) < known.index(types.DEVICE_CPU)


def test_registering_a_device_type(monkeypatch):
    monkeypatch.setattr(types, "_device_types", dict(types._device_types))
    made = types.register_device_type("NPU", 300)
    assert types.register_device_type("NPU", 300) is made
    assert types.device_types()[0] == "NPU"
    assert isinstance(made, DeviceType)
    with pytest.raises(errors.AlreadyExistsError, match="priority 300, cannot change it to 5"):
        types.register_device_type("NPU", 5)


def test_memory_types():
    assert [m.name for m in MemoryType] == ["DEVICE_MEMORY", "HOST_MEMORY"]


def test_frame_and_iter_is_hashable_and_prints_as_in_rendezvous_keys():
    assert FrameAndIter(7, 3) == FrameAndIter(7, 3) == (7, 3)
    assert len({FrameAndIter(0, 0), FrameAndIter(0, 1), FrameAndIter(0, 0)}) == 2
    assert str(FrameAndIter(7, 3)) == "7:3"


def test_frame_and_iter_is_illegal_by_default():
    assert not FrameAndIter().is_legal
    assert not FrameAndIter(0).is_legal
    assert FrameAndIter(0, 0).is_legal


def test_frame_ids_depend_on_all_that_they_are_made_from_and_nothing_else():
    ids = {types.frame_id_of(parent, i, name) for parent in ("", "a") for i in (0, 1) for name in ("", "b")}
    assert len(ids) == 8
    assert types.frame_id_of("", 0, "while") == types.frame_id_of("", 0, "while")
    # Written down, as two processes have to agree.
    assert types.frame_id_of("root", 2, "while/frame") == 987405519063082411


@pytest.mark.parametrize(
    ("predicate", "members", "others"),
    [
        (types.is_quantized, "qint8 quint8 qint16 quint16 qint32", "int8 float"),
        (types.is_complex, "complex64 complex128", "float double"),
        (types.is_simple_type, "float bool qint8 bfloat16 complex64", "string resource variant"),
        (types.is_signed, "float int8 int64 complex64 qint8 half", "uint8 bool quint8 string"),
    ],
)
def test_predicates(predicate, members, others):
    assert all(predicate(name) for name in members.split())
    assert not any(predicate(name) for name in others.split())
    assert all(predicate(dtypes.as_dtype(name).ref) for name in members.split())


def test_register_types_calls_in_order():
    registered = []
    types.register_types("COMPLEX_TYPES", registered.append)
    assert registered == [dtypes.complex64, dtypes.complex128]
    with pytest.raises(errors.NotFoundError, match="no type group 'NO_TYPES'; there are INTEGRAL_TYPES"):
        types.register_types("NO_TYPES", registered.append)


def test_groups_contain_each_other():
    groups = {name: set(members) for name, members in types.TYPE_GROUPS.items()}
    assert groups["INTEGRAL_TYPES"] == groups["SIGNED_INTEGRAL_TYPES"] | groups["UNSIGNED_INTEGRAL_TYPES"]
    assert groups["REAL_NUMBER_TYPES"] == groups["INTEGRAL_TYPES"] | groups["FLOAT_TYPES"]
    assert groups["NUMBER_TYPES"] == groups["REAL_NUMBER_TYPES"] | groups["COMPLEX_TYPES"]
    assert groups["POD_TYPES"] == groups["NUMBER_TYPES"] | {dtypes.bool_}
    assert groups["ALL_TYPES"] == groups["POD_STRING_TYPES"] | {dtypes.resource, dtypes.variant}
    assert groups["GPU_ALL_TYPES"] < groups["POD_TYPES"]
    assert all(len(members) == len(groups[name]) for name, members in types.TYPE_GROUPS.items())


PLAIN = ["bool", "int8", "half", "bfloat16", "float", "int32", "double", "int64", "complex64", "complex128", "qint32"]


@pytest.mark.parametrize("name", PLAIN)
def test_proxies_have_the_width_of_what_they_stand_for(name):
    dtype = dtypes.as_dtype(name)
    assert types.proxy_dtype(dtype).size == dtype.size
    array = np.ones((2, 3), dtype.np)
    proxy = types.proxy_view(array)
    assert proxy.shape == (2, 3)
    assert np.shares_memory(proxy, array)


@pytest.mark.parametrize("name", ["string", "resource", "variant"])
def test_objects_have_no_proxy(name):
    with pytest.raises(errors.InvalidArgumentError, match=f"{name} has no proxy type"):
        types.proxy_dtype(name)


def test_type_indices_are_unique_per_class():
    class Var:
        type_name = "tensorflow::Var"

    class Other:
        pass

    assert TypeIndex.of(Var) is TypeIndex.of(Var)
    assert TypeIndex.of(Var).name == "tensorflow::Var"
    assert TypeIndex.of(Other).name == "Other"
    assert TypeIndex.of(Var).hash_code != TypeIndex.of(Other).hash_code
    assert TypeIndex.of(Var).hash_code != 0
