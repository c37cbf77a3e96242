"""The parts of `tf` that do not build graphs: flags, files, logging, test cases, structures, error codes."""

from __future__ import annotations

import enum
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf
from aexec import errors


def flags() -> Any:
    """Some of each kind."""
    values = tf.flags.FlagValues()
    tf.flags.DEFINE_string("name", None, "50% of it", flag_values=values)
    tf.flags.DEFINE_integer("steps", 3, "", lower_bound=0, flag_values=values)
    tf.flags.DEFINE_boolean("train", True, "", flag_values=values)
    tf.flags.DEFINE_enum("mode", "a", ["a", "b"], "", flag_values=values)
    tf.flags.DEFINE_list("layers", ["1"], "", flag_values=values)
    return values


def test_flags_are_read_from_the_command_line() -> None:
    values = flags()
    words = "prog --name=x --steps 7 a --notrain --mode b --layers=2,3 -- b".split()
    assert values(words) == ["prog", "a", "b"]
    assert list(values.flag_values_dict().values()) == ["x", 7, False, "b", ["2", "3"]]
    values.steps = 8
    assert values["steps"].value == 8 and "steps" in values and values.is_parsed()


def test_flags_are_objects_as_in_absl() -> None:
    """TensorFlow's answers, which are those of absl's flags."""
    values = tf.flags.FlagValues()
    holder = tf.flags.DEFINE_integer("a", 3, "the a", short_name="x", flag_values=values)
    tf.flags.DEFINE_boolean("b", False, "bb", flag_values=values)
    tf.flags.DEFINE_string("s", "q", "ss", flag_values=values)
    tf.flags.DEFINE_float("f", None, "ff", flag_values=values)
    assert (holder.name, holder.default) == ("a", 3)
    words = ["prog", "-a=5", "-b", "rest", "-s", "-word", "-f", "2.5", "--", "-z", "--"]
    assert values(words) == ["prog", "rest", "-z", "--"]
    assert (values.a, values.b, values.s, values.f, holder.value, holder.present) == (5, True, "-word", 2.5, 5, 1)
    flag = values["a"]
    found = flag.name, flag.value, flag.default, flag.help, flag.short_name, flag.present, flag.boolean
    assert found == ("a", 5, 3, "the a", "x", 1, False) and not flag.using_default_value
    flag.value = 11
    assert values.a == 11 and values.get_flag_value("a", 9) == 11
    assert {name: values[name].value for name in values} == values.flag_values_dict()
    values.unparse_flags()
    assert not values.is_parsed()
    tf.flags.set_default(holder, 21)
    values.mark_as_parsed()
    assert (holder.value, holder.default, values["a"].present) == (21, 21, 0) and values["a"].using_default_value
    assert values.f is None and values.get_flag_value("f", 1.5) == 1.5
    assert values(["prog", "-x", "7"]) == ["prog"] and values.a == 7
    tf.flags.set_default("a", 4, values)
    assert values.a == 7
    with pytest.raises(KeyError):
        values["none"]


def test_boolean_flag_takes_no_word() -> None:
    values = flags()
    assert values(["prog", "--train", "false", "-notrain", "a"]) == ["prog", "false", "a"] and values.train is False


def test_defaults_that_are_text_are_read_as_on_the_command_line() -> None:
    values = tf.flags.FlagValues()
    tf.flags.DEFINE_list("names", "a, b", "", flag_values=values)
    tf.flags.DEFINE_multi_integer("sizes", 3, "", flag_values=values)
    tf.flags.DEFINE_multi_string("words", ["x"], "", flag_values=values)
    tf.flags.DEFINE_multi_float("rates", None, "", flag_values=values)
    tf.flags.DEFINE_integer("steps", "12", "", flag_values=values)
    tf.flags.DEFINE_bool("train", "false", "", flag_values=values)
    tf.flags.DEFINE_float("rate", 1, "", flag_values=values)
    values(["prog", "--sizes=4", "--sizes=5"])
    assert list(values.flag_values_dict().values()) == [["a", "b"], [4, 5], ["x"], None, 12, False, 1.0]
    assert type(values.rate) is float


@pytest.mark.parametrize("words", ["--steps=x", "--steps=-1", "--mode=c", "--train=7", "--unknown=1"])
def test_wrong_command_line_is_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        flags()(["prog", words])
    assert words.partition("=")[0].strip("-") in capsys.readouterr().err


def test_app_runs_main(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["prog", "word"])
    with pytest.raises(SystemExit) as ended:
        tf.app.run(len)
    assert ended.value.code == 2


def test_gfile_reads_and_writes(tmp_path: Path) -> None:
    folder = str(tmp_path / "a" / "b")
    tf.gfile.MakeDirs(folder)
    path = tf.io.gfile.join(folder, "f.txt")
    with tf.gfile.GFile(path, "w") as file:
        file.write("one\ntwo\n")
    with tf.gfile.Open(path) as file:
        assert list(file) == ["one\n", "two\n"] and file.size() == 8
    assert tf.gfile.Exists(path) and tf.io.gfile.isdir(folder) and tf.gfile.Glob(f"{folder}/*") == [path]
    tf.io.gfile.copy(src=path, dst=f"{path}2")
    with pytest.raises(errors.AlreadyExistsError):
        tf.gfile.Rename(path, f"{path}2")
    tf.gfile.Remove(path)
    assert tf.gfile.ListDirectory(folder) == ["f.txt2"]
    with pytest.raises(tf.errors.NotFoundError):
        tf.gfile.GFile(path).read()
    tf.gfile.DeleteRecursively(folder)
    assert not tf.io.gfile.exists(folder)


def test_logging_is_pythons(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tensorflow"):
        tf.logging.info("%d steps", 3)
        for _ in range(3):
            tf.logging.log_first_n(tf.logging.WARN, "once", 1)
    assert [record.getMessage() for record in caplog.records] == ["3 steps", "once"]


class OfTensorFlows(tf.test.TestCase):
    """As programs write theirs."""

    def test_run(self) -> None:
        with self.session() as sess:
            self.assertAllClose(sess.run(tf.constant([1.0, 2.0])), [1.0, 2.0 + 1e-7])
            self.assertAllEqual(self.evaluate(tf.constant([1, 2])), [1, 2])
            self.assertAllClose(tf.constant(2.0) / 4.0, 0.5)
        self.assertShapeEqual(np.zeros((2, 3)), tf.zeros([2, 3]))
        self.assertProtoEquals('name: "one" op: "NoOp"', tf.no_op(name="one").node_def)
        self.assertNDArrayNear(np.ones(2), np.ones(2) + 1e-3, 1e-2)
        self.assertStartsWith("abc", "ab")

    def test_differences(self) -> None:
        for check in (
            lambda: self.assertAllClose(1.0, [1.0, 1.0]),
            lambda: self.assertAllEqual([2, 2], 2),
            lambda: self.assertProtoEquals('name: "two" op: "NoOp"', tf.no_op(name="one").node_def),
            lambda: self.assertNDArrayNear(np.ones(4), np.ones(4) + 1e-2, 1e-2),
            lambda: self.assertStartsWith("abc", "b"),
        ):
            with pytest.raises(AssertionError):
                check()


def test_strings_and_structures() -> None:
    assert tf.compat.as_bytes("ä") == "ä".encode() and tf.compat.as_str(b"a") == "a" == tf.compat.as_str_any(b"a")
    assert tf.compat.v1 is tf and tf.newaxis is None and not tf.executing_eagerly()
    with pytest.raises(TypeError, match="Expected binary or unicode string"):
        tf.compat.as_bytes(3)
    assert tf.nest.pack_sequence_as({"b": 0, "a": (0, 0)}, [1, 2, 3]) == {"b": 3, "a": (1, 2)}
    with pytest.raises(ValueError, match="same nested structure"):
        tf.nest.map_structure(lambda a, b: a, [1, [2]], [1, 2])


def test_codes_of_errors() -> None:
    assert (tf.errors.OK, tf.errors.CANCELLED, tf.errors.UNAUTHENTICATED) == (0, 1, 16)
    assert tf.is_tensor(tf.constant(1)) and tf.is_tensor(tf.Variable(1)) and not tf.is_tensor([1])


def test_print_prints_in_a_run(capfd: pytest.CaptureFixture[str]) -> None:
    with tf.Session() as sess:
        sess.run(tf.print("x", tf.constant([1, 2]), sep=", ", output_stream=sys.stdout))
    assert "x, [1 2]" in capfd.readouterr().out


def test_variables_begin_with_values_of_a_checkpoint(tmp_path: Path) -> None:
    with tf.variable_scope("old"):
        tf.get_variable("a", initializer=[1.0, 2.0])
        tf.get_variable("b", initializer=3.0)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(sess, str(tmp_path / "c"))
    tf.reset_default_graph()
    with tf.variable_scope("new"):
        a, b = tf.get_variable("a", [2]), tf.get_variable("b", [], use_resource=True)
    c = tf.get_variable("c", [], initializer=tf.zeros_initializer())
    with pytest.raises(ValueError, match="is not found in"):
        tf.train.init_from_checkpoint(path, {"old/x": a})
    tf.train.init_from_checkpoint(str(tmp_path), {"old/": "new/"})
    tf.train.init_from_checkpoint(path, {"old/b": c})
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert [value.tolist() for value in sess.run([a, b, c])] == [[1, 2], 3, 3]


def test_clusters() -> None:
    spec = tf.train.ClusterSpec({"worker": ["a:1", "b:2"], "ps": {2: "c:3"}})
    assert spec.as_dict() == {"worker": ["a:1", "b:2"], "ps": {2: "c:3"}} == tf.train.ClusterSpec(spec).as_dict()
    assert tf.train.ClusterSpec(spec.as_cluster_def()) == spec and spec.job_tasks("ps") == [None, None, "c:3"]
    with pytest.raises(errors.UnimplementedError, match="distributed"):
        tf.train.Server(spec)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


def test_flags_of_enums_and_lists() -> None:
    values = tf.flags.FlagValues()
    tf.flags.DEFINE_multi_enum("kinds", "a", ["a", "b"], flag_values=values, case_sensitive=False)
    tf.flags.DEFINE_enum_class("colour", "red", Colour, flag_values=values)
    tf.flags.DEFINE_spaceseplist("words", None, comma_compat=True, flag_values=values)
    values(["p"])
    assert values.kinds == ["a"] and values.colour is Colour.RED and values.words is None
    values(["p", "--kinds=B", "--kinds=a", "--colour=BLUE", "--words=x,y z"])
    assert values.kinds == ["b", "a"] and values.colour is Colour.BLUE and values.words == ["x", "y", "z"]
    with pytest.raises(SystemExit):
        values(["p", "--colour=green"])
    tf.flags.set_default("words", ["z"], values)
    tf.flags.declare_key_flag("words", values)
    tf.flags.adopt_module_key_flags(enum, values)
    assert values.words == ["x", "y", "z"] and values["words"].default == ["z"]
    with pytest.raises(AttributeError, match="no flag 'none'"):
        tf.flags.declare_key_flag("none", values)


@pytest.mark.parametrize(
    ("given", "required", "right"), [([], False, True), ([], True, False), (["--a=1"], True, True)]
)
def test_flags_may_exclude_each_other(given: list[str], required: bool, right: bool) -> None:
    values = tf.flags.FlagValues()
    for name in "ab":
        tf.flags.DEFINE_string(name, None, flag_values=values)
    tf.flags.mark_flags_as_mutual_exclusive(["a", "b"], required, values)
    if right:
        values(["p", *given])
        with pytest.raises(SystemExit):
            values(["p", "--a=1", "--b=2"])
    else:
        with pytest.raises(SystemExit):
            values(["p", *given])
