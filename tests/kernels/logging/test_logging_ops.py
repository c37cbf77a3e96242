"""Assert, Print, PrintV2, Timestamp: what they write, where, and in which form."""

from __future__ import annotations

import logging
import time

import numpy as np
import pytest

from aexec.framework import errors
from aexec.framework.printed import print_text
from tests.kernels.array_support import F32, I32, assert_refuses, assert_same
from tests.kernels.harness import build, in_tensorflow, ops_of, registered, run_op, strings


@pytest.mark.parametrize("op", ops_of("logging.logging_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def scalar(value):
    return strings(value, shape=())


class Printing:
    """A context whose step prints where all graphs of the process do."""

    print_text = staticmethod(print_text)


SHOWN = [
    (F32([0, 1, 2]), 3, "0 1 2"),
    (F32(range(8)), 3, "0 1 2..."),
    (F32(range(6)).reshape(2, 3), 3, "[0 1 2]..."),
    (F32(range(8)).reshape(2, 2, 2), 3, "[[0 1][2...]]..."),
    (F32(range(8)).reshape(2, 2, 2), 5, "[[0 1][2 3]][[4...]]..."),
    (F32(range(6)).reshape(2, 3), 4, "[0 1 2][3...]..."),
    (F32(range(6)).reshape(2, 3), 100, "[0 1 2][3 4 5]"),
    (F32([0, 1]), -1, "0 1"),
    (F32(1.5), 3, "1.5"),
    (F32([]), 3, ""),
    (np.zeros((2, 0), np.float32), 3, ""),
    (np.array([True, False]), 3, "1 0"),
    (F32([0.1, 1 / 3, 1e10]), 3, "0.1 0.333333343 1e+10"),
    (strings("x is bad", 'a"\n'), 3, 'x is bad a\\"\\n'),
]


@pytest.mark.parametrize(("data", "summarize", "text"), SHOWN)
def test_assert(data, summarize, text):
    assert run_op("Assert", [np.True_, [data]], summarize=summarize) is None
    message = f"assertion failed: [{text}] [7]"
    assert_refuses("Assert", [np.False_, [data, I32([7])]], message, summarize=summarize)


def test_assert_message_without_elements_to_show():
    assert_refuses("Assert", [np.False_, [F32([[0, 1]]), F32([])]], "assertion failed: [...] []", summarize=0)


def test_assert_wants_a_scalar():
    assert_refuses("Assert", [np.array([True, True]), [F32(1)]], "In[0] should be a scalar: [2]")


@pytest.mark.parametrize(("data", "summarize", "text"), SHOWN)
def test_print(data, summarize, text, capsys):
    x = strings("given on")
    kernel, inputs, _ = build("Print", [x, [data, I32([7])]], message="seen: ", summarize=summarize)
    assert_same(kernel.compute(Printing(), *inputs), x)
    assert capsys.readouterr().err == f"seen: [{text}][7]\n"


def test_print_only_at_first(capsys):
    kernel = build("Print", [F32(1), [I32(7)]], first_n=2)[0].compute
    for i in range(4):
        assert kernel(Printing(), np.float32(i), np.int32(i)) == i
    assert capsys.readouterr().err == "[0]\n[1]\n"


def test_print_v2_to_the_standard_streams(capsys):
    assert run_op("PrintV2", [scalar("hé")], context=Printing()) is None
    run_op("PrintV2", [scalar("out")], context=Printing(), output_stream="stdout", end="!")
    seen = capsys.readouterr()
    assert (seen.err, seen.out) == ("hé\n", "out!")


@pytest.mark.parametrize("level", ["INFO", "WARNING", "ERROR"])
def test_print_v2_to_the_log(level, caplog):
    with caplog.at_level(logging.INFO, "aexec"):
        run_op("PrintV2", [scalar("100%s")], context=Printing(), output_stream=f"log({level.lower()})", end="")
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [(level, "100%s")]


def test_print_v2_to_a_file(tmp_path):
    path = tmp_path / "seen"
    for text in (b"one", b"\xff"):
        run_op("PrintV2", [scalar(text)], output_stream=f"file://{path}")
    assert path.read_bytes() == b"one\n\xff\n"
    gone = tmp_path / "nowhere" / "seen"
    message = f"{gone}; No such file or directory"
    assert_refuses("PrintV2", [scalar("x")], message, errors.NotFoundError, output_stream=f"file://{gone}")


def test_print_v2_errors():
    assert_refuses("PrintV2", [strings("a")], "Input is expected to be scalar, but got [1]")
    with pytest.raises(errors.InvalidArgumentError, match="Unknown output stream: nowhere"):
        run_op("PrintV2", [scalar("a")], output_stream="nowhere")


def test_timestamp_is_now():
    before = time.time()
    now = build("Timestamp", [])[0].compute()
    assert now.dtype == np.float64
    assert before <= now <= time.time()
