"""Variables that belong to others, with the names that TensorFlow gives them."""

from __future__ import annotations

import aexec.compat.v1 as tf
from aexec.compat.v1.inner import slot_creator, variables


def test_slots() -> None:
    v = tf.Variable(tf.zeros([2, 3]), name="a/v")
    r = tf.get_variable("r", [2, 3], use_resource=True)
    for primary, name in ((v, "a/v"), (r, "r")):
        made = [
            slot_creator.create_slot(primary, tf.ones([2, 3]), "m"),
            slot_creator.create_zeros_slot(primary, "z"),
            slot_creator.create_zeros_slot(primary, "zi", dtype=tf.int32, colocate_with_primary=False),
            slot_creator.create_slot_with_initializer(
                primary, tf.ones_initializer(), tf.TensorShape([4]), tf.float64, "q"
            ),
            slot_creator.create_slot(primary, tf.ones([2, 3]), "m"),
        ]
        assert [slot.name for slot in made] == [f"{name}/{slot}:0" for slot in ("m", "z", "zi", "q", "m_1")]
        assert [slot.dtype.base_dtype for slot in made] == [tf.float32, tf.float32, tf.int32, tf.float64, tf.float32]
        assert made[3].shape == [4] and not made[0].trainable
        own = [f"loc:@{name}".encode()]
        assert [slot.op.colocation_groups() == own for slot in made] == [True, True, False, True, True]
        assert {variables.is_resource_variable(slot) for slot in made} == {primary is r}
    with tf.variable_scope("sc"):
        assert slot_creator.create_zeros_slot(v, "o").name == "sc/a/v/o:0"
    assert tf.trainable_variables() == [v, r]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run(tf.global_variables()[2]).tolist() == [[1.0] * 3] * 2


def test_names_of_the_class_of_variables() -> None:
    made = variables.ResourceVariable([1.0], name="w")
    assert variables.is_resource_variable(made) and isinstance(made, variables.VariableV1)
    assert not variables.is_resource_variable(variables.RefVariable([1.0]))
