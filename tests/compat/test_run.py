"""Programs that import TensorFlow run on aexec in a process of their own, unchanged."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from aexec.compat import mnist, tensorflow_modules

PROGRAM = """
import tensorflow as tf
import tensorflow.compat.v1 as tf1
import tensorflow.core.framework.summary_pb2
from tensorflow.python import pywrap_tensorflow
from tensorflow.python.client import device_lib, timeline
from tensorflow.python.estimator.inputs import numpy_io
from tensorflow.python.framework import function, ops, smart_cond, tensor_shape, tensor_util
from tensorflow.python.layers import base, utils
from tensorflow.python.lib.io import file_io
from tensorflow.python.ops import array_ops, gen_math_ops, rnn_cell_impl, variable_scope as vs
from tensorflow.python.platform import gfile, tf_logging as logging
from tensorflow.python.tools import freeze_graph, inspect_checkpoint
from tensorflow.python.training import optimizer, slot_creator, training_ops
from tensorflow.python.training.moving_averages import assign_moving_average
from tensorflow.python.util import deprecation, nest, tf_contextlib, tf_decorator, tf_inspect
from tensorflow.python.util.tf_export import tf_export

assert callable(function.Defun) and smart_cond.smart_cond is utils.smart_cond and base.Layer is tf.layers.Layer
assert file_io.FileIO is tf.gfile.GFile and nest.flatten is tf.nest.flatten and nest.is_sequence([])
assert training_ops.resource_apply_adam and tensor_util.constant_value(3) == 3 and tensor_shape.scalar() == []
assert slot_creator.create_slot and optimizer.Optimizer is tf.train.Optimizer and tf_inspect.isclass(ops.Tensor)
assert ops.convert_to_tensor is tf.convert_to_tensor and rnn_cell_impl._zero_state_tensors
assert tf is tf1 is tf.compat.v1 and gfile is not None and logging.info is tf.logging.info
assert vs.get_variable is tf.get_variable and vs.variable_scope is tf.variable_scope
assert pywrap_tensorflow.NewCheckpointReader is tf.train.NewCheckpointReader and freeze_graph.freeze_graph
assert numpy_io.numpy_input_fn is tf.estimator.inputs.numpy_input_fn
assert ops.GraphKeys is tf.GraphKeys and array_ops.concat is tf.concat
assert rnn_cell_impl.LSTMStateTuple is tf.nn.rnn_cell.LSTMStateTuple
for name in ("tensorflow.keras.layers", "tensorflow.python.frob", "tensorflow.compat.v2",
             "tensorflow.python.keras.layers", "tensorflow.python.debug", "tensorflow.python.eager.backprop"):
    try:
        __import__(name)
    except ModuleNotFoundError as error:
        print(error)

def main(words):
    average = tf.Variable([0.0, 0.0])
    moved = assign_moving_average(average, [1.0, 2.0], 0.9)
    plain = assign_moving_average(tf.Variable(1.0, name="b"), 2.0, 0.75, zero_debias=False)
    metadata = tf.RunMetadata()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        trace = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        values = sess.run([moved, plain, gen_math_ops.neg(1.0)], options=trace, run_metadata=metadata)
        again = sess.run(moved)
    assert "traceEvents" in timeline.Timeline(metadata.step_stats).generate_chrome_trace_format()
    print(device_lib.list_local_devices()[0].device_type, words[1:], *values, again.round(5))

if __name__ == "__main__":
    tf.app.run()
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program in a process."""
    command = [sys.executable, "-m", "aexec.compat.run", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)


def test_program_runs_unchanged(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run(tmp_path, "program.py", "word")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "layers are functions here" in lines[0] and "take the public name" in lines[1] and "compat.v2" in lines[2]
    assert "tf.layers" in lines[3] and "docs/profiling.md" in lines[4] and "no eager execution" in lines[5]
    assert lines[6].startswith("CPU ['word'] [1. 2.] 1.25 -1.0 [1. 2.]"), lines[6]


@pytest.mark.parametrize(
    ("program", "flags", "words"),
    [
        ("skip_gram_flags", ["--train_steps=50", "--word_batch=16"], "nearest to word 0"),
        ("monitored_training", ["--max_steps=60", "--nouse_averages"], "accuracy = "),
        ("custom_estimator", [], "Test set accuracy: 0.9"),
    ],
)
def test_example_runs_with_its_flags(tmp_path: Path, program: str, flags: list[str], words: str) -> None:
    """As it is written for TensorFlow."""
    source = (Path(__file__).parents[2] / "examples" / f"{program}.py").read_text()
    (tmp_path / "program.py").write_text(
        source.replace("import aexec.compat.v1 as tf", "import tensorflow.compat.v1 as tf")
    )
    done = run(tmp_path, "program.py", *flags)
    assert done.returncode == 0, done.stderr
    assert words in done.stderr + done.stdout


def test_each_borrowed_name_is_looked_for_in_modules_that_exist() -> None:
    loaders = [tensorflow_modules._loader(f"python.{inner}") for inner in tensorflow_modules._INNER]
    places = {place for loader in loaders for place in loader.create_module(ModuleSpec("m", loader))._places}
    assert not [place for place in sorted(places) if find_spec(place) is None]


def test_module_runs_unchanged(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "module.py").write_text(
        "import sys, tensorflow\nprint(tensorflow.__name__, sys.argv[1:])\n"
    )
    assert run(tmp_path, "-m", "package.module", "-m").stdout == "aexec.compat.v1 ['-m']\n"


def test_missing_program_is_refused(tmp_path: Path) -> None:
    assert run(tmp_path).returncode == 2


def write(path: Path, array: np.ndarray) -> None:
    head = struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape)
    with gzip.open(path, "wb") as file:
        file.write(head + array.astype(np.uint8).tobytes())


def test_mnist_is_read_from_files_that_are_there(tmp_path: Path) -> None:
    for part, count in (("train", 7), ("t10k", 2)):
        write(tmp_path / f"{part}-images-idx3-ubyte.gz", np.arange(count * 4).reshape(count, 2, 2))
        write(tmp_path / f"{part}-labels-idx1-ubyte.gz", np.arange(count))
    data = mnist.read_data_sets(str(tmp_path), one_hot=True, validation_size=2, seed=1)
    assert [part.num_examples for part in data] == [5, 2, 2] and data.test.labels.shape == (2, 10)
    np.testing.assert_allclose(data.validation.images[1], np.arange(4, 8) / 255, rtol=1e-6)
    seen = [data.train.next_batch(2)[1].argmax(axis=1).tolist() for _ in range(5)]
    flat = [label for batch in seen for label in batch]
    assert sorted(flat[:5]) == sorted(flat[5:]) == [2, 3, 4, 5, 6] and data.train.epochs_completed == 1


def test_missing_or_damaged_mnist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="downloads no data"):
        mnist.read_data_sets(str(tmp_path))
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"\0" * 20)
    with pytest.raises(ValueError, match="no IDX file of 3 axes"):
        mnist.read_data_sets(str(tmp_path))
