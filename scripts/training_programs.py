"""Programs of `examples/` that train a model, for `scripts/bench programs`, in the sizes that people use.

A program is built as it is written: its module is loaded with `aexec.compat.v1` or with TensorFlow as its `tf`, the
constants at its head get the sizes below, and its own functions build the graph.  TensorFlow 2 has no `tf.contrib`, and
`tf.layers` only with the packages tf_keras and tf_slim; where something is missing, TensorFlow runs the graph that
aexec built.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from model_contenders import Contenders

__all__ = ["PROGRAM_CONTENDERS", "Built", "Call", "Program", "built_here", "programs"]

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
OURS = "aexec.compat.v1"
SEED = 1


class Call(NamedTuple):
    """One `Session.run` of a step: what it fetches (a loss comes last), and what it feeds."""

    fetches: list[Any]
    feeds: dict[Any, Any]


@dataclass(frozen=True)
class Built:
    """A program's graph in a front end, with names of nodes and tensors of the graph in `calls` and `initialize`."""

    tf: Any
    graph: Any
    calls: tuple[Call, ...]
    initialize: tuple[str, ...]

    def imported(self, tf: Any) -> Built:
        """Return the same graph, imported by the front end `tf`."""
        message = tf.GraphDef.FromString(self.graph.as_graph_def().SerializeToString())
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(message, name="")
        return Built(tf, graph, self.calls, self.initialize)


@dataclass(frozen=True)
class Program:
    """A program, with the interface of `models.Model` that `model_benchmarks.py` uses.

    Attributes:
        name: of its module in `examples/`.
        title: for the table.
        sizes: constant of the module → value.
        step: builds the graph with a module, and returns the calls of one step with tensors and nodes.
        needs: packages without which TensorFlow 2 cannot build the program; None if there are none that help.
    """

    name: str
    title: str
    sizes: Mapping[str, Any]
    step: Callable[[Any], Sequence[Call]]
    needs: tuple[str, ...] | None = ()
    not_for: frozenset[str] = field(default=frozenset())

    def built(self, tf: Any, named: str) -> Built:
        """Build the program's graph with the front end `tf`, which is the module `named`."""
        module = self._module(named)
        with tf.Graph().as_default() as graph:
            tf.set_random_seed(SEED)
            calls = tuple(_by_name(call) for call in self.step(module))
            initializers = tf.global_variables_initializer(), tf.local_variables_initializer()
        return Built(tf, graph, calls, tuple(node.name for node in initializers))

    def _module(self, named: str) -> ModuleType:
        path = EXAMPLES / f"{self.name}.py"
        module = ModuleType(self.name)
        exec(compile(path.read_text().replace(OURS, named), path, "exec"), module.__dict__)
        unknown = [name for name in self.sizes if not hasattr(module, name)]
        if unknown:
            raise AttributeError(f"{path.name} has no constant {unknown[0]}")
        module.__dict__.update(self.sizes)
        return module


def _by_name(call: Call) -> Call:
    return Call([_name(fetch) for fetch in call.fetches], {_name(key): value for key, value in call.feeds.items()})


def _name(element: Any) -> str:
    return str(element.name)


class Runner(ABC):
    """Runs a program's steps by `Session.run`, as programs do; a contender of `model_benchmarks.py`.

    The answer of a run is the loss of each call before the step, in the order of the calls.
    """

    async def prepare(self, model: Program, threads: int) -> None:
        built = self.built(model)
        tf = built.tf
        config = tf.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
        self._calls = built.calls
        self._session = tf.Session(graph=built.graph, config=config)
        self._session.run(list(built.initialize))

    @abstractmethod
    def built(self, model: Program) -> Built:
        """Return the graph to run."""

    async def run(self) -> list[Any]:
        run = self._session.run
        return [run(call.fetches, feed_dict=call.feeds)[-1] for call in self._calls]

    async def close(self) -> None:
        self._session.close()


class AexecProgram(Runner):
    """`aexec.compat.v1`."""

    def built(self, model: Program) -> Built:
        return built_here(model)


class TensorFlowProgram(Runner):
    """TensorFlow's v1 front end, with its default optimiser of graphs."""

    def built(self, model: Program) -> Built:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
        tf: Any = importlib.import_module("tensorflow.compat.v1")
        tf.disable_v2_behavior()
        tf.logging.set_verbosity(tf.logging.ERROR)
        if model.needs is None or not all(importlib.util.find_spec(name) for name in model.needs):
            return built_here(model).imported(tf)
        if "tf_slim" in model.needs:
            # What stands for tf.contrib when the losses of the examples are recorded.
            tf.contrib = importlib.import_module("tests.compat.recorded.contrib").contrib(tf)
        return model.built(tf, "tensorflow.compat.v1")


def built_here(model: Program) -> Built:
    """Return the program's graph as aexec builds it."""
    return model.built(importlib.import_module(OURS), OURS)


PROGRAM_CONTENDERS: Contenders = {
    "aexec": (AexecProgram, ()),
    "tensorflow": (TensorFlowProgram, ("tensorflow",)),
}

LAYERS = ("tf_keras",)
SLIM = ("tf_keras", "tf_slim")


def programs(*, small: bool = False) -> list[Program]:
    """Return all programs; `small` ones have the sizes of the examples."""
    found = [
        Program(
            "word2vec",
            "word2vec: skip-grams, NCE of 64, 50 000 words of 128, batch 128",
            {"WORDS": 50_000, "SIZE": 128, "SAMPLED": 64, "BATCH": 128},
            _word2vec,
        ),
        Program(
            "vae",
            "VAE 784–500–20, Adam, clipped gradients, batch 128",
            {"PIXELS": 784, "HIDDEN": 500, "LATENT": 20, "BATCH": 128},
            _vae,
            LAYERS,
        ),
        Program(
            "gan",
            "GAN 100–128–784, a step of each, batch 128",
            {"NOISE": 100, "SIZE": 784, "HIDDEN": 128, "BATCH": 128},
            _gan,
        ),
        Program(
            "wgan",
            "WGAN 100–128–784, gradient penalty, 5 + 1 steps, batch 64",
            {"NOISE": 100, "SIZE": 784, "HIDDEN": 128, "BATCH": 64},
            _wgan,
        ),
        Program(
            "style_net",
            "style net of 16 to 64 channels, 5 blocks, pictures of 64×64, batch 4",
            {"SIZE": 64, "CHANNELS": 16, "BLOCKS": 5, "BATCH": 4},
            _style_net,
        ),
        Program(
            "translation",
            "seq2seq, GRU of 128 with attention, 2000 symbols, batch 32 of 20",
            {"SYMBOLS": 2000, "UNITS": 128, "EMBEDDING": 64, "BATCH": 32, "LONGEST": 20},
            _translation,
            None,
        ),
        Program("dqn", "DQN, two layers of 32, huber loss, batch 32", {"BATCH": 32}, _dqn, LAYERS),
        Program(
            "crf_tagger",
            "CRF tagger, LSTM of 100 in both directions, batch 20 of 30",
            {"WORDS": 5000, "SIZE": 100, "TAGS": 9, "LONGEST": 30, "BATCH": 20, "UNITS": 100},
            _crf_tagger,
            None,
        ),
        Program(
            "slim_convnet",
            "slim convnet, batch norm, 28×28, 16 and 32 channels, batch 64",
            {"SIZE": 28, "CHANNELS": 16, "CLASSES": 10, "BATCH": 64},
            _slim_convnet,
            SLIM,
        ),
    ]
    if small:
        return [Program(p.name, p.title, {}, p.step, p.needs) for p in found]
    return found


# One step of each program: its graph, and a batch that all steps have.


def _rng() -> np.random.RandomState:
    return np.random.RandomState(0)


def _word2vec(m: Any) -> list[Call]:
    centers, contexts, _, loss, step = m.build()
    # Ids by Zipf's law, the frequent ones first.
    ids = np.minimum(_rng().zipf(1.2, 2 * m.BATCH) - 1, m.WORDS - 1).astype(np.int32)
    return [Call([step, loss], {centers: ids[: m.BATCH], contexts: ids[m.BATCH :, None]})]


def _vae(m: Any) -> list[Call]:
    data, elbo, _, optimize = m.build()
    pixels = (_rng().rand(m.BATCH, m.PIXELS) < 0.2).astype(np.float32)
    return [Call([optimize, elbo], {data: pixels})]


def _gan(m: Any) -> list[Call]:
    real, noise, _, (d_loss, d_step), (g_loss, g_step) = m.build()
    of_real, of_noise = _points(m)
    return [Call([d_step, d_loss], {real: of_real, noise: of_noise}), Call([g_step, g_loss], {noise: of_noise})]


def _wgan(m: Any) -> list[Call]:
    real, noise, _, (critic_loss, critic_step), (generator_loss, generator_step) = m.build()
    of_real, of_noise = _points(m)
    critic = Call([critic_step, critic_loss], {real: of_real, noise: of_noise})
    return [*[critic] * m.CRITIC_STEPS, Call([generator_step, generator_loss], {noise: of_noise})]


def _points(m: Any) -> tuple[Any, Any]:
    rng = _rng()
    return rng.randn(m.BATCH, m.SIZE).astype(np.float32), rng.randn(m.BATCH, m.NOISE).astype(np.float32)


def _style_net(m: Any) -> list[Call]:
    content, _, loss, step = m.build()
    return [Call([step, loss], {content: m.pictures(m.BATCH, _rng())})]


def _translation(m: Any) -> list[Call]:
    model = m.Model()
    return [Call([model.update, model.loss], model.feed(m.sentences(_rng())))]


def _dqn(m: Any) -> list[Call]:
    online, target = m.QNetwork("online"), m.QNetwork("target")
    rng = _rng()
    states, after = rng.rand(2, m.BATCH, 2 * m.SIDE).astype(np.float32)
    feed = {
        online.inputs: states,
        online.actions: rng.randint(m.ACTIONS, size=m.BATCH),
        online.targets: rng.rand(m.BATCH).astype(np.float32),
    }
    return [
        Call([online.output], {online.inputs: after}),
        Call([target.output], {target.inputs: after}),
        Call([online.optimizer, online.loss], feed),
    ]


def _crf_tagger(m: Any) -> list[Call]:
    model, rng = m.Tagger(), _rng()
    lengths = rng.randint(m.LONGEST // 2, m.LONGEST + 1, size=m.BATCH)
    inside = np.arange(m.LONGEST) < lengths[:, None]
    words, tags = (rng.randint(n, size=inside.shape) * inside for n in (m.WORDS, m.TAGS))
    return [Call([model.train_op, model.loss], model.feed(words, lengths, tags, 0.8))]


def _slim_convnet(m: Any) -> list[Call]:
    inputs, labels, _, _, train_op = m.build()
    batch, of = m.images(m.BATCH, _rng())
    return [Call([train_op], {inputs: batch, labels: of})]
