"""Ops that check what they are given.  See `scenario.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework.dtypes import float32, int64, resource, string
from tests.kernels.data_flow.scenarios.scenario import SCALAR, Scenario, Step, scenario, text
from tests.support.programs.graphs import GraphBuilder

__all__ = ["SCENARIOS"]

SCENARIOS: dict[str, Scenario] = {}
_add = scenario(SCENARIOS)


def _guarantee(g: GraphBuilder) -> None:
    g("v", "VarHandleOp", dtype=float32, shape=SCALAR, shared_name=b"v")
    g("g", "GuaranteeConst", "v", T=resource)
    g("q", "FIFOQueueV2", component_types=[float32], shapes=[SCALAR])
    g("g2", "GuaranteeConst", "q", T=resource)
    g.const("c", [1.0, 2.0], float32)
    g("g3", "GuaranteeConst", "c", T=float32)


_add("GuaranteeConst", _guarantee, "g", "g2", "g3:0")


def _ngrams(**attrs: Any) -> Callable[[GraphBuilder], None]:
    def build(g: GraphBuilder) -> None:
        g.placeholder("data", string)
        g.placeholder("splits", int64)
        made = {
            "Tsplits": int64,
            "separator": b" ",
            "ngram_widths": [2],
            "left_pad": b"<",
            "right_pad": b">",
            "pad_width": 0,
            "preserve_short_sequences": False,
            **attrs,
        }
        g("n", "StringNGrams", "data", "splits", **made)

    return build


def _words(splits: Any, *words: bytes) -> Step:
    return "n:0 n:1", {"data": text(*words), "splits": np.array(splits, np.int64)}


_add(
    "ngrams: widths",
    _ngrams(),
    _words([0, 3], b"a", b"b", b"c"),
    _words([], b"a"),
    _words(
        [0],
    ),
    _words([0, 5], b"a"),
    _words([1, 1], b"a"),
    _words([0, 1, 0, 1], b"a"),
    _words([0, -1], b"a"),
    _words([0, 0]),
    _words([[0, 1]], b"a"),
)
_add("ngrams: no widths", _ngrams(ngram_widths=[]), _words([0, 1], b"a"))
_add("ngrams: width 0", _ngrams(ngram_widths=[2, 0]), _words([0, 1], b"a"))
_add("ngrams: negative width", _ngrams(ngram_widths=[-1]), _words([0, 1], b"a"))
_add("ngrams: padding", _ngrams(pad_width=-1), _words([0, 1], b"a"), _words([0, 3], b"a", b"b", b"c"))
for _pad in (-1, 0, 1):
    _add(
        f"ngrams: short ones without widths, padding {_pad}",
        _ngrams(preserve_short_sequences=True, ngram_widths=[], pad_width=_pad),
        _words([0, 2], b"a", b"b"),
        _words([0, 0, 1], b"a"),
        _words([0, 0]),
        _words([0, 1, 3], b"a", b"b", b"c"),
    )
_add(
    "ngrams: short ones",
    _ngrams(preserve_short_sequences=True, ngram_widths=[3]),
    _words([0, 1, 1, 3], b"a", b"b", b"c"),
)


def _ragged(rank: int, batched: bool) -> Callable[[GraphBuilder], None]:
    def build(g: GraphBuilder) -> None:
        names = [g.placeholder(f"s{i}", int64) for i in range(rank)]
        g.placeholder("v", float32)
        g(
            "r",
            "RaggedTensorToVariant",
            *names,
            "v",
            RAGGED_RANK=rank,
            Tvalues=float32,
            Tsplits=int64,
            batched_input=batched,
        )
        if rank:
            g(
                "back",
                "RaggedTensorFromVariant",
                "r",
                input_ragged_rank=max(rank - 1, 0) if batched else rank,
                output_ragged_rank=rank,
                Tvalues=float32,
                Tsplits=int64,
            )

    return build


def _splits(values: Any, *splits: Any, fetch: str = "r") -> Step:
    feeds = {f"s{i}": np.array(split, np.int64) for i, split in enumerate(splits)}
    return fetch, {**feeds, "v": np.array(values, np.float32)}


for _batched in (False, True):
    _add(
        f"RaggedTensorToVariant, batched {_batched}",
        _ragged(1, _batched),
        _splits([1.0], [0, 1]),
        _splits([1.0], [[0, 1]]),
        _splits([1.0], []),
        _splits([1.0], 0),
        _splits([1.0], [0, 2]),
        _splits([1.0, 2.0], [0, 2, 1]),
        _splits([1.0], [1, 1]),
        _splits([1.0], [0]),
        _splits([], [0, 0]),
        _splits([1.0, 2.0, 3.0], [0, 2]),
        _splits([1.0], [0, -1]),
        _splits([1.0, 2.0], [0, 1, 2], fetch="back:0 back:1"),
    )
    _add(
        f"RaggedTensorToVariant of two, batched {_batched}",
        _ragged(2, _batched),
        _splits([1.0], [0, 1], [0, 1]),
        _splits([1.0], [0, 2], [0, 1]),
        _splits([1.0], [0, 1], [[0, 1]]),
        _splits([1.0], [0, 1], []),
        _splits([1.0], [], [0, 1]),
    )
_add("RaggedTensorToVariant of none", _ragged(0, False), _splits([1.0, 2.0]), _splits(1.0))
_add("RaggedTensorToVariant of none, batched", _ragged(0, True), _splits([1.0, 2.0]), _splits(1.0))
