"""The programs of `scripts/bench programs`: each learns its batch, and an imported graph has the same losses."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf

SCRIPTS = str(Path(__file__).parents[2] / "scripts")
sys.path.insert(0, SCRIPTS)
benchmarks: Any = importlib.import_module("model_benchmarks")
programs: Any = importlib.import_module("training_programs")
sys.path.remove(SCRIPTS)

SMALL = {program.name: program for program in programs.programs(small=True)}


class Imported(programs.Runner):  # type: ignore[misc]
    """Runs the graph that aexec built after a way through its wire form."""

    def built(self, model: Any) -> Any:
        return programs.built_here(model).imported(tf)


async def losses(runner: Any, program: Any, steps: int) -> list[list[float]]:
    await runner.prepare(program, 1)
    try:
        return [[float(np.mean(loss)) for loss in await runner.run()] for _ in range(steps)]
    finally:
        await runner.close()


@pytest.mark.parametrize("name", SMALL)
async def test_program_trains_and_so_does_its_imported_graph(name: str) -> None:
    found = await losses(programs.AexecProgram(), SMALL[name], 4)
    assert np.isfinite(found).all()
    assert found[0] != found[-1]
    np.testing.assert_allclose(await losses(Imported(), SMALL[name], 4), found, rtol=1e-4, atol=1e-5)


def test_sizes_are_constants_of_the_program() -> None:
    for program in programs.programs():
        module = program._module(programs.OURS)
        assert {name: getattr(module, name) for name in program.sizes} == program.sizes
    unknown = programs.Program("gan", "", {"WIDTH": 3}, lambda module: [])
    with pytest.raises(AttributeError, match=r"gan\.py has no constant WIDTH"):
        unknown.built(tf, programs.OURS)


def test_command_writes_a_page_of_its_own(tmp_path: Path) -> None:
    page = tmp_path / "programs.md"
    arguments = ["gan", "--small", "--seconds=0", "--only=aexec", "--threads=1", "--markdown", str(page)]
    assert benchmarks.main(arguments, "programs") == 0
    lines = page.read_text().splitlines()
    assert lines[0] == "# Programs against TensorFlow"
    assert any(line.startswith("| GAN 100–128–784, a step of each, batch 128 | ") for line in lines)
