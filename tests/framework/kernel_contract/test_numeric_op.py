from __future__ import annotations

import numpy as np
import pytest

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import KernelRegistration
from aexec.framework.kernel_contract.numeric_op import BinaryElementWiseOp, BinaryOp, UnaryElementWiseOp, UnaryOp
from aexec.framework.kernel_contract.op_kernel import OpKernelConstruction
from aexec.framework.op_contract.op_def_builder import OpDefBuilder
from tests.support.stand_ins import contexts

FLOAT = dtypes.float32


class Halve(UnaryElementWiseOp):
    def operate(self, a):
        return a / 2


class Average(BinaryElementWiseOp):
    def operate(self, a, b):
        return (a + b) / 2


def construction(inputs, outputs=(FLOAT,), T=FLOAT) -> OpKernelConstruction:
    op_def = OpDefBuilder("Test").attr("T: type").finalize()
    return OpKernelConstruction(name="n", op_def=op_def, attrs={"T": T}, input_types=inputs, output_types=outputs)


def test_unary_kernel_operates_on_its_input():
    built = KernelRegistration("Test", "CPU", Halve, {}).build(construction([FLOAT]))
    (halved,) = contexts.call(built, [np.float32([2, 4])])
    assert halved.tolist() == [1, 2]


def test_binary_kernel_operates_on_inputs_of_one_shape():
    built = KernelRegistration("Test", "CPU", Average, {}).build(construction([FLOAT, FLOAT]))
    (average,) = contexts.call(built, [np.float32([2, 4]), np.float32([0, 2])])
    assert average.tolist() == [1, 3]
    with pytest.raises(errors.InvalidArgumentError) as caught:
        contexts.call(built, [np.zeros((2, 3)), np.zeros(2)])
    assert caught.value.message == (
        "Inputs to operation n of type Test must have the same size and shape.  Input 0: [2,3] != input 1: [2]"
    )


def test_more_dimensions_than_eight_are_fine():
    x = np.ones((1,) * 9, np.float32)
    built = KernelRegistration("Test", "CPU", Average, {}).build(construction([FLOAT, FLOAT]))
    assert contexts.call(built, [x, x])[0].shape == x.shape


@pytest.mark.parametrize(
    ("cls", "inputs", "outputs"),
    [
        (Halve, [], [FLOAT]),
        (Halve, [dtypes.int32], [FLOAT]),
        (Halve, [FLOAT], [dtypes.int32]),
        (Average, [FLOAT], [FLOAT]),
        (Average, [FLOAT, dtypes.int32], [FLOAT]),
    ],
)
def test_another_signature_is_refused(cls, inputs, outputs):
    with pytest.raises(errors.InvalidArgumentError, match=r"Signature mismatch, have: .* expected: float"):
        cls(construction(inputs, outputs))


def test_ref_does_for_a_value():
    built = KernelRegistration("Test", "CPU", Halve, {}).build(construction([FLOAT.ref]))
    assert contexts.call(built, [np.array([2.0, 4.0], np.float32)])[0].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("cls", "inputs", "missing"),
    [
        (UnaryOp, 1, "compute"),
        (BinaryOp, 2, "compute"),
        (UnaryElementWiseOp, 1, "operate"),
        (BinaryElementWiseOp, 2, "operate"),
    ],
)
def test_missing_method_of_a_subclass_is_named(cls, inputs, missing):
    built = KernelRegistration("Test", "CPU", cls, {}).build(construction([FLOAT] * inputs))
    with pytest.raises(errors.UnimplementedError, match=f"{cls.__name__} does not define {missing}"):
        contexts.call(built, [np.zeros(1)] * inputs)
