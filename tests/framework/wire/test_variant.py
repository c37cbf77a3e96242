from __future__ import annotations

import struct

import numpy as np
import pytest

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.wire import tensor_codec, variant
from aexec.framework.wire.variant import DeviceCopyDirection, VariantTensorData


@pytest.fixture(autouse=True)
def registries(monkeypatch):
    """Whatever a test registers is forgotten."""
    for name in ("_by_class", "_by_name", "_unary", "_binary", "_copies"):
        monkeypatch.setattr(variant, name, dict(getattr(variant, name)))


class Pair:
    """Two arrays and a label."""

    type_name = "test::Pair"

    def __init__(self, first, second, label="") -> None:
        self.first, self.second, self.label = np.asarray(first), np.asarray(second), label

    def encode(self) -> VariantTensorData:
        return VariantTensorData(metadata=self.label.encode(), tensors=[self.first, self.second])

    @classmethod
    def decode(cls, data: VariantTensorData) -> Pair:
        return cls(*data.tensors, data.metadata.decode())


def test_registered_class_survives_the_wire():
    variant.register_variant(Pair)
    message = variant.encode(Pair([1, 2], [3.0], "both"))
    assert (message.type_name, message.metadata, len(message.tensors)) == ("test::Pair", b"both", 2)
    back = variant.decode(proto.VariantTensorDataProto.FromString(message.SerializeToString()))
    assert type(back) is Pair
    assert back.first.tolist() == [1, 2]
    assert back.second.tolist() == [3.0]
    assert back.label == "both"


def test_empty_variant_has_an_empty_message():
    assert variant.encode(None) == proto.VariantTensorDataProto()
    assert variant.decode(proto.VariantTensorDataProto()) is None
    assert variant.type_name_of(None) == ""


@pytest.mark.parametrize(
    ("value", "type_name", "metadata"),
    [
        (True, "bool", b"\1"),
        (-5, "long", struct.pack("<q", -5)),
        (1.5, "double", struct.pack("<d", 1.5)),
        (1 + 2j, "std::complex<double>", struct.pack("<dd", 1, 2)),
        (np.int32(7), "int", struct.pack("<i", 7)),
        (np.float32(0.5), "float", struct.pack("<f", 0.5)),
    ],
)
def test_plain_values_go_into_the_metadata(value, type_name, metadata):
    message = variant.encode(value)
    assert message == proto.VariantTensorDataProto(type_name=type_name, metadata=metadata)
    back = variant.decode(message)
    assert back == value
    assert type(back) is type(value)


def test_array_is_the_only_tensor():
    message = variant.encode(np.arange(3))
    assert message.type_name == "tensorflow::Tensor"
    assert variant.decode(message).tolist() == [0, 1, 2]


def test_protobuf_message_goes_into_the_metadata_under_tensorflows_name():
    versions = proto.VersionDef(producer=3)
    message = variant.encode(versions)
    assert message.type_name == "tensorflow.VersionDef"
    assert message.metadata == versions.SerializeToString()
    assert variant.decode(message) == versions


@pytest.mark.parametrize("name", ["nobody", "tensorflow.Nothing", "tensorflow.DataType", "other.VersionDef"])
def test_unknown_type_name_cannot_be_decoded(name):
    with pytest.raises(errors.InvalidArgumentError, match=f'Could not decode variant with type_name: "{name}"'):
        variant.decode(proto.VariantTensorDataProto(type_name=name))


@pytest.mark.parametrize(
    ("name", "metadata"), [("long", b"123"), ("tensorflow::Tensor", b""), ("tensorflow.VersionDef", b"\xff")]
)
def test_corrupt_data_cannot_be_decoded(name, metadata):
    with pytest.raises(errors.InvalidArgumentError, match=f'Could not decode variant with type_name: "{name}"'):
        variant.decode(proto.VariantTensorDataProto(type_name=name, metadata=metadata))


def test_decoder_must_not_change_the_type():
    class Turncoat(Pair):
        type_name = "test::Turncoat"

        @classmethod
        def decode(cls, data: VariantTensorData) -> int:
            return 1

    variant.register_variant(Turncoat)
    with pytest.raises(errors.InvalidArgumentError) as caught:
        variant.decode(variant.encode(Turncoat(1, 2)))
    assert "before decoding was: test::Turncoat but after decoding was: long" in caught.value.message


def test_unregistered_type_cannot_be_encoded():
    with pytest.raises(errors.InvalidArgumentError, match="Variants of type Pair cannot be encoded"):
        variant.encode(Pair(1, 2))
    assert variant.type_name_of(Pair(1, 2)) == "Pair"


def test_int_beyond_64_bits_cannot_be_encoded():
    with pytest.raises(errors.InvalidArgumentError, match="cannot be encoded as a long"):
        variant.encode(2**63)


def test_type_name_is_registered_once():
    variant.register_variant(Pair)

    class Impostor(Pair):
        pass

    with pytest.raises(errors.AlreadyExistsError, match="'test::Pair' is registered already"):
        variant.register_variant(Impostor)


def test_get_converts_nothing():
    assert variant.get(5, int) == 5
    assert variant.get(True, int) is None
    assert variant.get(5, float) is None
    assert variant.get(None, int) is None


def test_variant_tensors_survive_the_wire():
    tensor = np.empty((3,), object)
    tensor[:] = [1, None, np.float32(2)]
    back = tensor_codec.from_proto(tensor_codec.to_proto(tensor, dtypes.variant))
    assert back.tolist() == [1, None, np.float32(2)]


# Operations


def test_unary_ops_are_found_by_operation_device_and_class():
    variant.register_unary_op("ZEROS_LIKE", "CPU", Pair, lambda p: Pair(p.first * 0, p.second * 0))
    zero = variant.zeros_like(Pair([1, 2], [3]))
    assert zero.first.tolist() == [0, 0]
    for device, value in (("GPU", Pair(1, 2)), ("CPU", 5)):
        with pytest.raises(
            errors.UnimplementedError, match="No unary variant unary_op function found for op ZEROS_LIKE"
        ):
            variant.zeros_like(value, device)


def test_binary_ops_need_two_of_one_class():
    variant.register_binary_op("ADD", "CPU", Pair, lambda a, b: Pair(a.first + b.first, a.second + b.second))
    total = variant.add(Pair([1, 2], [3]), Pair([10, 20], [30]))
    assert total.first.tolist() == [11, 22]
    with pytest.raises(errors.InvalidArgumentError, match=r"different type ids\.  Type names: 'Pair' vs\. 'long'"):
        variant.add(Pair(1, 2), 1)
    with pytest.raises(errors.UnimplementedError, match="No unary variant binary_op function found for op ADD"):
        variant.add(1, 2)


def test_operation_is_registered_once():
    variant.register_unary_op("ZEROS_LIKE", "CPU", Pair, lambda p: p)
    with pytest.raises(errors.AlreadyExistsError):
        variant.register_unary_op("ZEROS_LIKE", "CPU", Pair, lambda p: p)


def test_device_copy_copies_each_tensor():
    copied = []

    def copy_tensor(array):
        copied.append(array.tolist())
        return array.copy()

    to_device = DeviceCopyDirection.HOST_TO_DEVICE
    variant.register_device_copy(to_device, Pair, lambda p, copy: Pair(copy(p.first), copy(p.second), p.label))
    there = variant.copy_between_devices(Pair([1], [2], "both"), to_device, copy_tensor)
    assert (copied, there.label) == ([[1], [2]], "both")
    with pytest.raises(
        errors.UnimplementedError, match="No unary variant device copy function found for direction: DEVICE"
    ):
        variant.copy_between_devices(there, DeviceCopyDirection.DEVICE_TO_HOST, copy_tensor)


def test_known_values_are_copied_without_registration():
    double = lambda array: array * 2  # noqa: E731
    to_host = DeviceCopyDirection.DEVICE_TO_HOST
    assert variant.copy_between_devices(None, to_host, double) is None
    assert variant.copy_between_devices(7, to_host, double) == 7
    assert variant.copy_between_devices(np.array([1]), to_host, double).tolist() == [2]
