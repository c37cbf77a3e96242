"""Profiles of graphs, with the numbers and the trees of TensorFlow's."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import aexec.compat.v1 as tf

Builder = tf.profiler.ProfileOptionBuilder
RANDOM = "Initializer/random_uniform"


def layer() -> None:
    """A layer with a scale, whose kernel, bias and scale are trained; and a counter."""
    x = tf.placeholder(tf.float32, [4, 5], name="x")
    with tf.variable_scope("layer"):
        w, b, s = (tf.get_variable(name, shape) for name, shape in (("w", [5, 3]), ("b", [3]), ("s", [])))
        y = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, w, name="mm"), b, name="ba"))
    tf.reduce_mean(y * s, name="z")
    tf.get_variable("gs", [], trainable=False, dtype=tf.int64)


def products() -> None:
    """Products of matrices in scopes and outside."""
    x = tf.placeholder(tf.float32, [4, 5], name="x")
    a = tf.add(x, 1.0, name="a")
    w = tf.Variable(tf.zeros([5, 3]), name="a/w")
    with tf.name_scope("d/e"):
        m = tf.matmul(a, w, name="mm")
    tf.matmul(tf.placeholder(tf.float32, [None, 5], name="u"), w, name="n")
    tf.add(m, tf.matmul(a, w, name="mm3"), name="two")


def printed(cmd: str, options: dict[str, Any], **settings: Any) -> tuple[Any, list[str]]:
    """The result, and the lines below the heading of the report."""
    with redirect_stdout(io.StringIO()) as text:
        found = tf.profiler.profile(cmd=cmd, options=options, **settings)
    lines = [" ".join(line.split()) for line in text.getvalue().splitlines() if line]
    assert lines[0].strip("=") == "Model Analysis Report" and lines[-1].strip("=") == "End of Report"
    return found, lines[2:-1]


def tree(node: Any, *numbers: str) -> Any:
    """(name, numbers, children) of a result."""
    return (node.name, *(getattr(node, number) for number in numbers), [tree(each, *numbers) for each in node.children])


def test_trainable_parameters() -> None:
    layer()
    found, lines = printed("scope", Builder.trainable_variables_parameter())
    assert isinstance(found, tf.profiler.GraphNodeProto)
    leaves = [("layer/b", 3, 3, []), ("layer/s", 1, 1, []), ("layer/w", 15, 15, [])]
    assert tree(found, "parameters", "total_parameters") == ("_TFProfRoot", 0, 19, [("layer", 0, 19, leaves)])
    assert lines == [
        "_TFProfRoot (--/19 params)",
        "layer (--/19 params)",
        "layer/b (3, 3/3 params)",
        "layer/s (1, 1/1 params)",
        "layer/w (5x3, 15/15 params)",
    ]


def test_float_operations_by_scope() -> None:
    """Scopes without operations of their own are left out; the largest come first."""
    layer()
    found, lines = printed("scope", Builder.float_operation())
    assert found.total_float_ops == 197 and found.total_definition_count == 14
    assert lines[:4] == [
        "_TFProfRoot (--/197 flops)",
        "layer/mm (120/120 flops)",
        f"layer/w/{RANDOM} (15/31 flops)",
        f"layer/w/{RANDOM}/mul (15/15 flops)",
    ]
    assert [child.name for child in found.children] == [
        "layer/mm",
        f"layer/w/{RANDOM}",
        "layer/ba",
        "mul",
        "z",
        f"layer/b/{RANDOM}",
        f"layer/s/{RANDOM}",
    ]


def test_float_operations_by_op() -> None:
    layer()
    found, lines = printed("op", Builder.float_operation())
    assert isinstance(found, tf.profiler.MultiGraphNodeProto) and found.total_float_ops == 197
    assert lines == [
        "MatMul 120 float_ops (100.00%, 60.91%)",
        "Mul 31 float_ops (39.09%, 15.74%)",
        "AddV2 19 float_ops (23.35%, 9.64%)",
        "BiasAdd 12 float_ops (13.71%, 6.09%)",
        "Mean 12 float_ops (7.61%, 6.09%)",
        "Sub 3 float_ops (1.52%, 1.52%)",
    ]
    first = found.children[0]
    assert (first.float_ops, first.total_float_ops, first.graph_nodes[0].name) == (120, 197, "layer/mm")
    assert first.children[0].name == "Mul" and len(first.children) == 1


def test_all_columns_of_a_tree() -> None:
    layer()
    selected = ["params", "float_ops", "op_types", "input_shapes"]
    found, lines = printed("scope", Builder().select(selected).build())
    assert (found.total_parameters, found.total_float_ops, found.total_definition_count) == (40, 197, 46)
    assert "layer (0/19 params, 0/173 flops, _kTFScopeParent, )" in lines
    assert "layer/mm (0/0 params, 120/120 flops, MatMul, 0:4x5|1:5x3)" in lines
    assert "layer/w (5x3, 15/15 params, 0/31 flops, VariableV2|_trainable_variables, )" in lines
    assert "x (4x5, 20/20 params, 0/0 flops, Placeholder, )" in lines


def test_tree_of_inputs_has_each_node_once() -> None:
    products()
    options = Builder().with_node_names(start_name_regexes=["two"]).select(["params", "float_ops"]).build()
    _, lines = printed("graph", options)
    assert lines[1:] == [
        "two (0/20 params, 12/272 flops)",
        "d/e/mm (0/20 params, 120/140 flops)",
        "a (0/20 params, 20/20 flops)",
        "a/y (0/0 params, 0/0 flops)",
        "x (4x5, 20/20 params, 0/0 flops)",
        "mm3 (0/0 params, 120/120 flops)",
    ]


@pytest.mark.parametrize(("cmd", "names"), [("scope", ["d", "d/e", "d/e/mm"]), ("graph", ["d/e/mm"])])
def test_counted_types(cmd: str, names: list[str]) -> None:
    """A scope is shown for what is in it, a consumer of counted nodes is not."""
    products()
    found, lines = printed(cmd, Builder().with_accounted_types(["MatMul"]).select(["float_ops"]).build())
    assert found.total_float_ops == 240
    assert [line.partition(" ")[0] for line in lines] == ["_TFProfRoot", *names, "mm3", "n"]


def test_names_that_are_shown() -> None:
    """What is hidden gives its place to what is below it; below what is trimmed nothing is shown."""
    products()

    def names(builder: Any) -> list[str]:
        _, lines = printed("scope", builder.select(["params"]).build())
        return [line.partition(" ")[0] for line in lines[1:]]

    counted = Builder().with_accounted_types(["MatMul", "VariableV2"])
    assert names(counted) == ["a", "a/w", "d", "d/e", "d/e/mm", "mm3", "n"]
    assert names(counted.with_node_names(hide_name_regexes=["d", "a.*"])) == ["d/e", "d/e/mm", "mm3", "n"]
    assert names(counted.with_node_names(hide_name_regexes=[], trim_name_regexes=["d/e"])) == ["a", "a/w", "mm3", "n"]
    assert names(Builder().with_max_depth(1)) == []
    assert names(Builder().with_min_parameters(10)) == ["a/w", "x"]
    assert names(Builder().with_node_names(show_name_regexes=["n|m.*"])) == ["mm3", "n"]


def test_large_numbers() -> None:
    for size in (999, 1000, 9999, 123456, 1000000, 2500000000):
        tf.placeholder(tf.float32, [size], name=f"n{size}")
    _, lines = printed("scope", Builder().order_by("params").select(["params"]).build())
    assert lines[1:] == [
        "n2500000000 (2500000000, 2.50b/2.50b params)",
        "n1000000 (1000000, 1.00m/1.00m params)",
        "n123456 (123456, 123.46k/123.46k params)",
        "n9999 (9999, 10.00k/10.00k params)",
        "n1000 (1000, 1.00k/1.00k params)",
        "n999 (999, 999/999 params)",
    ]


def test_sizes_that_are_not_known_count_nothing() -> None:
    tf.placeholder(tf.float32, [None, 5], name="u")
    tf.Variable(tf.placeholder(tf.float32), validate_shape=False, name="v")
    found, lines = printed("scope", Builder().select(["params"]).build())
    assert found.total_parameters == 0 and "u (-1x5, 0/0 params)" in lines


def test_partitioned_variables_are_trainable() -> None:
    tf.get_variable("w", [6, 2], partitioner=tf.fixed_size_partitioner(2))
    found, _ = printed("scope", Builder.trainable_variables_parameter())
    assert found.total_parameters == 12


def test_times_and_memory_of_a_run() -> None:
    a = tf.placeholder(tf.float32, [None, 5], name="a")
    tf.matmul(a, tf.constant([[1.0]] * 5), name="of_fed")
    with tf.name_scope("m"):
        tf.matmul(tf.square(a, name="sq"), tf.constant([[1.0]] * 5), name="mm")
    metadata = tf.RunMetadata()
    with tf.Session() as sess:
        options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        sess.run(["m/mm:0", "of_fed:0"], {a: [[1.0] * 5] * 4}, options=options, run_metadata=metadata)
    graph = tf.get_default_graph()
    found, lines = printed("scope", Builder.time_and_memory(), graph=graph, run_meta=metadata)
    assert found.total_exec_micros == found.total_cpu_exec_micros > 0
    scope = next(child for child in found.children if child.name == "m")
    product = next(child for child in scope.children if child.name == "m/mm")
    assert any(line.startswith("m/mm (") and "16B" in line for line in lines)
    assert (product.name, product.run_count, product.output_bytes) == ("m/mm", 1, 16)
    assert product.devices == ["/job:localhost/replica:0/task:0/device:CPU:0"]
    # The run's shapes stand in for those that the graph does not know, but it says none of what is fed.
    assert printed("scope", Builder.float_operation(), run_meta=metadata)[0].total_float_ops == 40
    assert printed("scope", Builder.float_operation())[0].total_float_ops == 0


def test_several_steps() -> None:
    a = tf.placeholder(tf.float32, [None, 5], name="a")
    tf.square(a, name="s")
    profiler = tf.profiler.Profiler()
    metadata = tf.RunMetadata()
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
    with tf.Session() as sess:
        for step, rows in ((3, 1), (5, 3)):
            sess.run("s:0", {a: [[1.0] * 5] * rows}, options=options, run_metadata=metadata)
            profiler.add_step(step, metadata)
    builder = Builder().select(["output_bytes"]).with_empty_output()
    sizes = {s: profiler.profile_graph(builder.with_step(s).build()).total_output_bytes for s in (3, 5, -1, 4)}
    assert sizes[3] * 3 == sizes[5] and sizes[-1] * 2 == sizes[3] + sizes[5] and sizes[4] == 0
    assert profiler.profile_operations(builder.build()).name == "_TFProfRoot"
    assert profiler.profile_name_scope(builder.build()).children[-1].name == "s"


def test_what_a_program_says_of_nodes() -> None:
    layer()
    log = tf.profiler.OpLogProto()
    log.log_entries.add(name="layer/Relu", float_ops=77, types=["mine"])
    options = Builder(Builder.float_operation()).with_accounted_types(["mine"]).build()
    found, lines = printed("scope", options, op_log=log)
    assert found.total_float_ops == 77 and lines[1] == "layer/Relu (77/77 flops)"


def test_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layer()
    file = tmp_path / "report"
    tf.profiler.profile(options=Builder(Builder.float_operation()).with_file_output(str(file)).build())
    tf.profiler.profile(options=Builder(Builder.float_operation()).with_empty_output().build())
    assert "layer/mm (120/120 flops)" in file.read_text() and not capsys.readouterr().out


def test_deep_graphs() -> None:
    x = tf.placeholder(tf.float32, [2])
    for _ in range(3000):
        x = tf.square(x)
    options = Builder(Builder.float_operation()).with_empty_output().build()
    assert tf.profiler.profile(cmd="graph", options=options).total_float_ops == 6000


def test_what_is_refused() -> None:
    layer()
    for cmd, error in (("code", NotImplementedError), ("zzz", tf.errors.InvalidArgumentError)):
        with pytest.raises(error, match=cmd):
            tf.profiler.profile(cmd=cmd)
    for options in ({"select": ["nope"]}, {"order_by": "nope"}, {"output": "nope"}, {"output": "file:x=1"}):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"nope|file"):
            tf.profiler.profile(options=options)
    for call in (
        lambda: Builder().with_timeline_output("t"),
        lambda: Builder().with_pprof_output("p"),
        lambda: tf.profiler.Profiler().advise({}),
        lambda: tf.profiler.Profiler().profile_python({}),
        lambda: tf.profiler.Profiler().serialize_to_string(),
    ):
        with pytest.raises(tf.errors.UnimplementedError):
            call()
    with pytest.raises(AttributeError, match=r"profiling\.md"):
        tf.profiler.advise


def test_older_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layer()
    analyzer = tf.contrib.tfprof.model_analyzer
    graph = tf.get_default_graph()
    options = analyzer.TRAINABLE_VARS_PARAMS_STAT_OPTIONS
    assert analyzer.print_model_analysis(graph, tfprof_options=options).total_parameters == 19
    assert "layer/w (5x3, 15/15 params)" in capsys.readouterr().out
    assert analyzer.print_model_analysis(graph, tfprof_cmd="op", tfprof_options=analyzer.FLOAT_OPS_OPTIONS).children
    capsys.readouterr()
    options = {**options, "dump_to_file": str(tmp_path / "report")}
    analyzer.print_model_analysis(graph, tfprof_options=options)
    assert "layer/b" in (tmp_path / "report").read_text() and not capsys.readouterr().out
