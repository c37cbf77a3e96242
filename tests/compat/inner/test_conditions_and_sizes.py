"""Conditions that are decided while the graph is built, and the sizes of layers, with TensorFlow's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aexec.compat.v1 as tf
from aexec.compat.v1.inner import layer_utils, smart_cond, tensor_util


def one() -> float:
    return 1.0


def two() -> float:
    return 2.0


def test_known_conditions_choose_now() -> None:
    for pred, expected in ((True, 1.0), (False, 2.0), (1, 1.0), (0, 2.0)):
        assert smart_cond.smart_cond(pred, one, two) == expected
    assert smart_cond.smart_cond(tf.constant(True), one, two) == 1.0
    assert layer_utils.smart_cond(tf.logical_not(tf.constant(True)), one, two) == 2.0
    pred = tf.placeholder(tf.bool, [])
    variable = tf.Variable(True)
    assert smart_cond.smart_constant_value(pred) is layer_utils.constant_value(variable) is None
    with tf.Session() as sess:
        sess.run(variable.initializer)
        chosen = [smart_cond.smart_cond(pred, one, two), layer_utils.smart_cond(variable, one, two)]
        assert sess.run(chosen, {pred: False}) == [2.0, 1.0]


@pytest.mark.parametrize("pred", [2, None, "a"])
def test_what_is_no_condition(pred: Any) -> None:
    for function in (smart_cond.smart_constant_value, layer_utils.constant_value):
        with pytest.raises(TypeError, match=f"or 1 or 0. Received: pred={pred} of type {type(pred).__name__}"):
            function(pred)


def test_functions_are_needed() -> None:
    with pytest.raises(TypeError, match=r"`true_fn` must be callable\. Received 1"):
        smart_cond.smart_cond(True, 1, two)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"`false_fn` must be callable\. Received None"):
        smart_cond.smart_cond(True, one)


def test_cases() -> None:
    pred = tf.placeholder(tf.bool, [])
    assert smart_cond.smart_case([(False, one), (True, two)], default=one) == 2.0
    assert smart_cond.smart_case([(False, one)]) == 1.0
    with tf.Session() as sess:
        chosen = smart_cond.smart_case([(False, one), (pred, one), (True, two)], default=lambda: 3.0)
        exclusive = smart_cond.smart_case([(pred, one)], default=two, exclusive=True)
        assert [sess.run([chosen, exclusive], {pred: value}) for value in (True, False)] == [[1.0, 1.0], [2.0, 2.0]]


def raised(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except ValueError as error:
        return str(error)


def test_tuples() -> None:
    normalize = layer_utils.normalize_tuple
    wrong = "Argument `k` must be a tuple of 2 integers. Received: "
    assert normalize(3, 2, "k") == (3, 3) and normalize([1, 2], 2, "k") == (1, 2)
    assert raised(lambda: normalize([1, 2, 3], 2, "k")) == f"{wrong}[1, 2, 3]"
    assert raised(lambda: normalize("ab", 2, "k")) == f"{wrong}ab including element a of type <class 'str'>"
    assert raised(lambda: normalize(None, 2, "k")) == f"{wrong}None"


def test_formats() -> None:
    convert = layer_utils.convert_data_format
    assert [convert("channels_last", rank) for rank in (3, 4, 5)] == ["NWC", "NHWC", "NDHWC"]
    assert [convert("channels_first", rank) for rank in (3, 4, 5)] == ["NCW", "NCHW", "NCDHW"]
    assert "Invalid data_format: x" in raised(lambda: convert("x", 4))
    assert "Input rank: 6 not supported" in raised(lambda: convert("channels_last", 6))
    assert layer_utils.normalize_data_format("Channels_Last") == "channels_last"
    assert layer_utils.normalize_padding("SAME") == "same"
    assert 'one of "valid", "same". Received: causal.' in raised(lambda: layer_utils.normalize_padding("causal"))


def test_lengths() -> None:
    sizes = [(7, 3, "same", 2), (7, 3, "valid", 2), (7, 3, "full", 2), (None, 3, "same", 2)]
    assert [layer_utils.conv_output_length(*each) for each in sizes] == [4, 3, 5, None]
    assert [layer_utils.conv_input_length(*each) for each in sizes] == [13, 15, 11, None]
    assert [layer_utils.deconv_output_length(*each) for each in sizes] == [14, 15, 11, None]
    assert layer_utils.conv_output_length(7, 3, "valid", 2, 2) == 2
    with pytest.raises(AssertionError, match="causal"):
        layer_utils.conv_output_length(7, 3, "causal", 2)


def test_values_that_the_graph_knows() -> None:
    unknown = tf.placeholder(tf.int32, [])
    assert tensor_util.constant_value(tf.constant([1, 2])).tolist() == [1, 2]
    assert tensor_util.constant_value(unknown) is None and tensor_util.constant_value(3) == 3
    assert tensor_util.constant_value(tf.shape(tf.zeros([2, 3]))).tolist() == [2, 3]
    assert tensor_util.constant_value_as_shape(tf.stack([2, unknown, 3])).as_list() == [2, None, 3]
    assert tensor_util.MakeNdarray(tensor_util.make_tensor_proto([1.0, 2.0])).tolist() == [1.0, 2.0]
