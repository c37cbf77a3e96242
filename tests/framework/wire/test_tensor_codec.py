"""TensorProto ↔ arrays: the answers were observed with TensorFlow's Const kernel."""

from __future__ import annotations

import sys
import types

import ml_dtypes
import numpy as np
import pytest
from google.protobuf import text_format

from aexec import proto
from aexec.framework import dtypes, errors, wire
from aexec.framework.memory.allocator import watching
from aexec.framework.waiting.inline_call import NeedsThreadError
from aexec.framework.wire import tensor_codec
from aexec.framework.wire.attr_value import TensorAttr

FIXED_SIZE = [d for d in vars(dtypes).values() if isinstance(d, dtypes.DType) and d.size]


def parse(text: str) -> proto.TensorProto:
    return text_format.Parse(text, proto.TensorProto())


def shaped(dtype: str, size: int, values: str) -> proto.TensorProto:
    return parse(f"dtype: DT_{dtype} tensor_shape {{ dim {{ size: {size} }} }} {values}")


@pytest.mark.parametrize(
    ("dtype", "size", "values", "expected"),
    [
        # The last value fills the rest, none is zeros, too many are ignored, a wrong field is none.
        ("FLOAT", 3, "float_val: [1, 2]", np.float32([1, 2, 2])),
        ("FLOAT", 2, "", np.float32([0, 0])),
        ("FLOAT", 1, "float_val: [3, 4]", np.float32([3])),
        ("FLOAT", 2, "double_val: [3, 4]", np.float32([0, 0])),
        ("DOUBLE", 2, "double_val: 0.1", np.float64([0.1, 0.1])),
        # int_val is cut to the type's width.
        ("INT8", 4, "int_val: [300, -1, 128]", np.int8([44, -1, -128, -128])),
        ("UINT8", 2, "int_val: -1", np.uint8([255, 255])),
        ("UINT16", 1, "int_val: 70000", np.uint16([4464])),
        ("QINT8", 3, "int_val: [1, 200]", np.int8([1, -56, -56])),
        ("INT4", 4, "int_val: [300, -1, 8]", np.array([-4, -1, -8, -8]).astype(ml_dtypes.int4)),
        ("UINT4", 3, "int_val: [300, -1, 8]", np.array([12, 15, 8]).astype(ml_dtypes.uint4)),
        ("INT2", 4, "int_val: [1, 2, 3, 4]", np.array([1, -2, -1, 0]).astype(ml_dtypes.int2)),
        ("INT64", 2, "int64_val: [9007199254740993]", np.int64([9007199254740993] * 2)),
        ("UINT32", 1, "uint32_val: 4294967295", np.uint32([4294967295])),
        ("UINT64", 1, "uint64_val: 18446744073709551615", np.uint64([18446744073709551615])),
        # 16-bit patterns for both half types, one byte per float8.
        ("HALF", 2, "half_val: [15360, 81920]", np.float16([1, 2])),
        ("BFLOAT16", 2, "half_val: 16256", np.array([1, 1]).astype(ml_dtypes.bfloat16)),
        ("FLOAT8_E5M2", 3, 'float8_val: "\\074\\075"', np.array([1, 1.25, 1.25]).astype(ml_dtypes.float8_e5m2)),
        ("FLOAT8_E4M3FN", 2, "int_val: 60", np.zeros(2, ml_dtypes.float8_e4m3fn)),
        # Complex values are pairs; half a pair is none.
        ("COMPLEX64", 3, "scomplex_val: [1, 2, 3]", np.complex64([1 + 2j] * 3)),
        ("COMPLEX64", 2, "scomplex_val: 1", np.complex64([0, 0])),
        ("COMPLEX128", 2, "dcomplex_val: [1, 2, 3, 4]", np.complex128([1 + 2j, 3 + 4j])),
        ("BOOL", 3, "bool_val: [false, true]", np.array([False, True, True])),
        # Content wins over values.
        ("INT32", 1, r'tensor_content: "\001\000\000\000" int_val: 7', np.int32([1])),
        ("INT4", 4, r'tensor_content: "\001\017\010\377"', np.array([1, -1, -8, -1]).astype(ml_dtypes.int4)),
        ("FLOAT", 0, 'tensor_content: "abc"', np.float32([])),
    ],
)
def test_from_proto_numbers(dtype, size, values, expected):
    array = tensor_codec.from_proto(shaped(dtype, size, values))
    assert array.dtype == expected.dtype
    np.testing.assert_array_equal(array, expected)
    assert not array.flags.writeable


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ('string_val: ["a", "b"]', [b"a", b"b", b"b"]),
        ("", [b"", b"", b""]),
        (r'tensor_content: "\001\000\002abc"', [b"a", b"", b"bc"]),
        (r'tensor_content: "\000\202\001\000' + "x" * 130 + '"', [b"", b"x" * 130, b""]),
    ],
)
def test_from_proto_strings(values, expected):
    array = tensor_codec.from_proto(shaped("STRING", 3, values))
    assert array.dtype == object
    assert array.tolist() == expected
    assert not array.flags.writeable


def test_from_proto_unknown_rank_is_read_as_its_dimensions():
    scalar = tensor_codec.from_proto(parse("dtype: DT_FLOAT tensor_shape { unknown_rank: true } float_val: [3, 4]"))
    assert scalar.shape == ()
    assert scalar == 3
    both = parse("dtype: DT_FLOAT tensor_shape { unknown_rank: true dim { size: 2 } } float_val: [3, 4]")
    assert tensor_codec.from_proto(both).tolist() == [3, 4]


def test_from_proto_content_is_not_copied():
    message = tensor_codec.to_proto(np.arange(6.0).reshape(2, 3))
    array = tensor_codec.from_proto(message)
    assert array.base is not None
    assert not array.flags.owndata
    np.testing.assert_array_equal(array, np.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize(
    "message",
    [
        shaped("FLOAT", 2, 'tensor_content: "abc"'),
        shaped("INT4", 4, 'tensor_content: "ab"'),
        shaped("BOOL", 3, r'tensor_content: "\002\000\001"'),
        shaped("FLOAT", -1, "float_val: 1"),
        shaped("STRING", 2, r'tensor_content: "\001\002abcd"'),
        shaped("STRING", 2, r'tensor_content: "\001\002ab"'),
        shaped("STRING", 1, r'tensor_content: "\377\377\377\377\377\377"'),
        shaped("STRING", 2**40, r'tensor_content: "\001a"'),
        shaped("FLOAT_REF", 1, "float_val: 1"),
        shaped("INVALID", 1, "float_val: 1"),
        parse("dtype: DT_FLOAT tensor_shape { dim { size: 4611686018427387904 } dim { size: 8 } }"),
        parse("dtype: DT_FLOAT tensor_shape {" + "dim { size: 1 }" * 255 + "} float_val: 1"),
        parse("dtype: DT_FLOAT tensor_shape {" + "dim { size: 1 }" * 65 + "} float_val: 1"),
        parse("dtype: DT_FLOAT tensor_shape { dim { size: 0 }" + "dim { size: 4611686018427387904 }" * 3 + "}"),
    ],
)
def test_from_proto_refuses(message):
    with pytest.raises(errors.InvalidArgumentError, match="Cannot parse tensor from proto"):
        tensor_codec.from_proto(message)


@pytest.mark.parametrize(
    "message",
    [
        shaped("FLOAT", 2**40, "float_val: 1"),
        shaped("DOUBLE", 2**40, ""),
        shaped("STRING", 2**40, 'string_val: "a"'),
        shaped("INT8", 2**32, "int_val: 1"),
    ],
)
def test_from_proto_few_bytes_do_not_become_terabytes(message):
    with pytest.raises(errors.ResourceExhaustedError, match="at most 2147483648 bytes are filled"):
        tensor_codec.from_proto(message)


def test_from_proto_fill_limit_is_an_argument():
    message = shaped("FLOAT", 1000, "float_val: 1")
    assert tensor_codec.from_proto(message, max_fill_bytes=4000).sum() == 1000
    with pytest.raises(errors.ResourceExhaustedError):
        tensor_codec.from_proto(message, max_fill_bytes=3999)


@pytest.mark.parametrize("dtype", FIXED_SIZE, ids=str)
@pytest.mark.parametrize("compact", [True, False])
def test_round_trip(dtype, compact):
    grid = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype.np)
    for array in (grid, grid[0, 1], grid[:, 2], grid[::-1, ::2], grid[:0], grid[0:1, 0:1]):
        message = tensor_codec.to_proto(array, dtype, compact=compact)
        assert message.dtype == dtype.enum
        decoded = tensor_codec.from_proto(message)
        assert decoded.dtype == dtype.np
        assert decoded.shape == array.shape
        assert decoded.tobytes() == array.tobytes()


def test_to_proto_compacts_a_constant_run_to_one_value():
    message = tensor_codec.to_proto(np.full((100, 100), 7, np.int32))
    assert list(message.int_val) == [7]
    assert not message.tensor_content
    # Equal as bytes, not as numbers.
    assert tensor_codec.to_proto(np.float32([0.0, -0.0])).tensor_content
    assert list(tensor_codec.to_proto(np.full(3, np.nan, np.float32)).tensor_content) == []
    assert list(tensor_codec.to_proto(np.full(3, 1 + 2j)).dcomplex_val) == [1, 2]


def test_to_proto_not_compact_is_dense():
    message = tensor_codec.to_proto(np.zeros(2, np.float32), compact=False)
    assert message.tensor_content == bytes(8)
    assert not tensor_codec.to_proto(np.zeros((0, 2), np.float32), compact=False).tensor_content


def test_to_proto_strings():
    array = np.array([b"a", b"\0b\0", "é"], object)
    expected = [b"a", b"\0b\0", "é".encode()]
    message = tensor_codec.to_proto(array)
    assert list(message.string_val) == expected
    assert not message.tensor_content
    dense = tensor_codec.to_proto(array, content_strings=True)
    assert dense.tensor_content == b"\1\3\2a\0b\0\xc3\xa9"
    assert tensor_codec.from_proto(dense).tolist() == expected
    assert list(tensor_codec.to_proto([b"a\0", b"b"], dtypes.string).string_val) == [b"a\0", b"b"]
    assert list(tensor_codec.to_proto(np.array(b"s", object)).string_val) == [b"s"]


def test_to_proto_foreign_byte_order():
    message = tensor_codec.to_proto(np.array([1, 2], ">i4"))
    assert message.tensor_content == b"\1\0\0\0\2\0\0\0"


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (np.float64([1]), dtypes.float32),
        (np.array([1, None], object), dtypes.string),
        (np.float32([1]), dtypes.float32.ref),
        (np.array("2020-01-01", "datetime64[D]"), None),
    ],
)
def test_to_proto_refuses(array, dtype):
    with pytest.raises(errors.InvalidArgumentError):
        tensor_codec.to_proto(array, dtype)


# ---- resources and variants


def test_resource_handles():
    message = shaped("RESOURCE", 2, 'resource_handle_val { name: "v" container: "c" }')
    array = tensor_codec.from_proto(message)
    assert array.dtype == object
    assert [handle.name for handle in array] == ["v", ""]  # the last handle does not fill the rest
    for in_content in (False, True):
        encoded = tensor_codec.to_proto(array, dtypes.resource, content_strings=in_content)
        assert bool(encoded.tensor_content) == in_content
        again = tensor_codec.from_proto(encoded)
        assert [handle.to_proto() for handle in again] == [handle.to_proto() for handle in array]


def test_variants_are_left_to_the_variant_registry(monkeypatch):
    # What a variant means is not this module's business, so a registry that only keeps the message will do.
    registry = types.ModuleType("aexec.framework.wire.variant")
    registry.decode = lambda message: ("variant", message)
    registry.encode = lambda value: value[1]
    monkeypatch.setitem(sys.modules, registry.__name__, registry)
    monkeypatch.setattr(wire, "variant", registry)
    message = shaped("VARIANT", 2, 'variant_val { type_name: "int" metadata: "x" }')
    array = tensor_codec.from_proto(message)
    assert [kept.type_name for _, kept in array] == ["int", ""]
    for in_content in (False, True):
        encoded = tensor_codec.to_proto(array, dtypes.variant, content_strings=in_content)
        assert bool(encoded.tensor_content) == in_content
        assert [kept for _, kept in tensor_codec.from_proto(encoded)] == [kept for _, kept in array]


def test_handle_content_that_is_no_message():
    with pytest.raises(errors.InvalidArgumentError, match="an element is no ResourceHandleProto"):
        tensor_codec.from_proto(shaped("RESOURCE", 1, r'tensor_content: "\001\377"'))


def test_value_field():
    assert tensor_codec.value_field(dtypes.bfloat16) == "half_val"
    assert tensor_codec.value_field(dtypes.quint16) == "int_val"
    assert tensor_codec.value_field(dtypes.float8_e4m3fn) == "float8_val"
    with pytest.raises(errors.InvalidArgumentError, match="float_ref"):
        tensor_codec.value_field(dtypes.float32.ref)


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [("FLOAT", "float_val: 2", 2.0), ("HALF", "half_val: 15360", 1.0), ("STRING", 'string_val: "a"', b"a")],
)
def test_large_tensor_of_one_value_takes_no_memory(dtype, values, expected):
    array = tensor_codec.from_proto(
        parse(f"dtype: DT_{dtype} tensor_shape {{ dim {{ size: 1000 }} dim {{ size: 1000 }} }} {values}")
    )
    assert array.shape == (1000, 1000) and array[999, 999] == expected
    assert not any(array.strides) and not array.flags.writeable


def test_large_constant_of_one_value_is_written_as_it_came():
    message = parse("dtype: DT_FLOAT tensor_shape { dim { size: 100000000 } } float_val: 2")
    attr = TensorAttr(message)
    assert attr.array.shape == (10**8,)
    assert attr.to_proto() == message and attr.num_bytes < 100


@pytest.mark.parametrize("dtype", ["FLOAT", "INT64", "HALF", "BOOL", "STRING", "COMPLEX64"])
def test_large_tensors_without_values_take_no_memory(dtype: str) -> None:
    array = tensor_codec.from_proto(shaped(dtype, 1_000_000, ""))
    assert array.strides == (0,) and array.shape == (1_000_000,) and not array[999_999] and not array.flags.writeable


class Room:
    """Watches what is announced, and refuses what is too much."""

    def __init__(self, most: int) -> None:
        self.announced, self.most = 0, most

    def announce(self, num_bytes: int) -> None:
        self.announced += num_bytes
        if self.announced > self.most:
            raise errors.ResourceExhaustedError("no room")


@pytest.mark.parametrize(
    ("message", "least"),
    [
        (shaped("FLOAT", 1_000_000, "float_val: [1, 2]"), 4_000_000),
        (shaped("STRING", 1_000_000, 'string_val: ["a", "b"]'), 8_000_000),
        (
            proto.TensorProto(
                dtype=1,
                tensor_content=bytes(400_000),
                tensor_shape=parse("tensor_shape { dim { size: 100000 } }").tensor_shape,
            ),
            400_000,
        ),
        (
            proto.TensorProto(
                dtype=7,
                tensor_content=bytes(100_000),
                tensor_shape=parse("tensor_shape { dim { size: 100000 } }").tensor_shape,
            ),
            3_000_000,
        ),
    ],
)
def test_memory_of_decoding_is_announced(message: proto.TensorProto, least: int) -> None:
    room = Room(2 * least + 10_000_000)
    with watching(room):  # type: ignore[arg-type]
        tensor_codec.from_proto(message)
    assert room.announced >= least
    with pytest.raises(errors.ResourceExhaustedError), watching(Room(least - 1)):  # type: ignore[arg-type]
        tensor_codec.from_proto(message)


def test_estimate_of_decoding_grows_with_what_is_made() -> None:
    filled = tensor_codec.decode_ns(shaped("FLOAT", 100_000_000, "float_val: [1, 2]"))
    repeated = tensor_codec.decode_ns(shaped("FLOAT", 100_000_000, "float_val: [1]"))
    assert repeated < 1e3 and filled > 50e6
    assert tensor_codec.decode_ns(proto.TensorProto(dtype=99)) == 0


@pytest.mark.parametrize(
    "message",
    [
        shaped("INT64", 100_000, ""),
        proto.TensorProto(dtype=9, int64_val=range(100_000), version_number=3, float_val=[1, 2]),
        proto.TensorProto(dtype=7, string_val=[b"a", b"b"] * 40_000, tensor_content=b"xyz"),
        proto.TensorProto(dtype=20, resource_handle_val=[proto.ResourceHandleProto(name="r")] * 40_000),
    ],
)
def test_copies_are_equal_and_of_their_own(message: proto.TensorProto) -> None:
    copy = tensor_codec.copied(message)
    assert copy == message and copy is not message
    message.version_number += 1
    assert copy != message


@pytest.mark.parametrize("count", [0, 1, 3, 100_000])
@pytest.mark.parametrize(
    "dtype", [dtypes.float32, dtypes.int8, dtypes.uint64, dtypes.bfloat16, dtypes.complex64, dtypes.bool_]
)
def test_to_field_parts_has_values_where_their_type_has_them(dtype: dtypes.DType, count: int) -> None:
    array = (np.arange(count) % 2).astype(dtype.np)
    message = proto.TensorProto.FromString(b"".join(tensor_codec.to_field_parts(array, dtype)))
    assert not message.tensor_content and message.HasField("tensor_shape")
    assert len(getattr(message, tensor_codec.value_field(dtype))) == count * (2 if dtype.is_complex else 1)
    decoded = tensor_codec.from_proto(message)
    assert decoded.dtype == array.dtype and (decoded == array).all()


def test_to_field_parts_of_strings_and_of_a_scalar() -> None:
    strings = tensor_codec.to_field_parts(np.array([b"a", b""], object), dtypes.string)
    assert list(proto.TensorProto.FromString(b"".join(strings)).string_val) == [b"a", b""]
    scalar = proto.TensorProto.FromString(b"".join(tensor_codec.to_field_parts(np.float32(2), dtypes.float32)))
    assert list(scalar.float_val) == [2] and scalar.HasField("tensor_shape")


async def test_to_field_parts_of_many_objects_is_work_for_a_thread() -> None:
    numbers, strings = np.arange(10**6), np.full(10**6, b"a", object)
    with pytest.raises(NeedsThreadError):
        tensor_codec.to_field_parts(numbers, dtypes.int64)
    with pytest.raises(NeedsThreadError):
        tensor_codec.to_field_parts(strings, dtypes.string)
    tensor_codec.to_field_parts(numbers.astype(np.float32), dtypes.float32)
