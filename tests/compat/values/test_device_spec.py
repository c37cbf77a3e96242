"""`tf.DeviceSpec`: device names as mutable parts."""

from __future__ import annotations

import pytest

import aexec.compat.v1 as tf


def test_text_and_parts() -> None:
    spec = tf.DeviceSpec(job="ps", replica=0, task=3, device_type="gpu", device_index=1)
    assert spec.to_string() == "/job:ps/replica:0/task:3/device:GPU:1"
    assert repr(spec) == "<DeviceSpec(job=ps, replica=0, task=3, device_type=GPU, device_index=1)>"
    assert spec == tf.DeviceSpec.from_string(spec.to_string()) and hash(spec) == hash(spec.replace())
    assert spec != tf.DeviceSpec() and tf.DeviceSpec().to_string() == "" and spec != "/job:ps"
    spec.device_index = None
    assert spec.to_string() == "/job:ps/replica:0/task:3/device:GPU:*"


def test_merged() -> None:
    spec, other = tf.DeviceSpec(job="ps", device_type="CPU"), tf.DeviceSpec(job="worker", task=2)
    assert spec.make_merged_spec(other).to_string() == "/job:worker/task:2/device:CPU:*"
    assert spec.to_string() == "/job:ps/device:CPU:*"
    spec.merge_from(other)
    assert spec.to_string() == "/job:worker/task:2/device:CPU:*"
    assert spec.replace(task=None).to_string() == "/job:worker/device:CPU:*"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("/cpu:0", "/device:CPU:0"),
        ("/job:w/gpu", "/job:w/device:GPU:*"),
        ("/job:w/replica:0/task:1/device:GPU:*", "/job:w/replica:0/task:1/device:GPU:*"),
        ("job:a", "/job:a"),
    ],
)
def test_parsed(text: str, name: str) -> None:
    assert tf.DeviceSpec.from_string(text).to_string() == name


def test_wrong_names_are_refused() -> None:
    with pytest.raises(ValueError, match="Unknown attribute 'foo' is encountered while parsing the device spec"):
        tf.DeviceSpec().parse_from_string("/foo:1")


def test_device_takes_a_specification_or_a_function_that_returns_one() -> None:
    spec = tf.DeviceSpec(device_type="CPU", device_index=0)
    with tf.device(spec):
        x = tf.constant(1)
    with tf.device(lambda node: spec.replace(job="localhost")):
        y = tf.constant(2)
    assert (x.op.device, y.op.device) == ("/device:CPU:0", "/job:localhost/device:CPU:0")
