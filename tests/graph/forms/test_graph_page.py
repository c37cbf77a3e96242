"""`graph_page`: a graph as a page of its own, drawn in headless Chromium from a file and in a notebook's frame."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import aexec
from aexec.graph.forms import graph_page as module
from aexec.graph.forms.graph_page import graph_frame, graph_page, viewer_files

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def layers() -> aexec.Graph:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")
        for i in range(3):
            with aexec.name_scope(f"layer{i}"):
                x = aexec.ops.tanh(aexec.ops.square(x, name="square"), name="tanh")
    return graph


def data_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="graph">(.*?)</script>', page)
    assert found is not None
    return json.loads(found[1])


def test_page_loads_nothing() -> None:
    page = graph_page(layers().nodes)
    assert not re.search(r'(?:src|href)="|url\(|https?://(?!www\.w3\.org/2000/svg)', page)


def test_names_cannot_end_the_data() -> None:
    with aexec.Graph() as graph:
        aexec.constant("</script><script>alert(1)</script>", name="c")
    page = graph_page(graph.nodes)
    assert "alert(1)</script>" not in page
    assert "</script><script>alert" in data_of(page)["nodes"][0]["attrs"]["value"]
    assert "<script" not in graph_frame(page)


def test_attrs_of_large_graphs_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_WITH_ATTRS", 2)
    monkeypatch.setattr(module, "_MOST_NODES", 5)
    data = data_of(graph_page(layers().nodes))
    assert data["total"] == 7 and len(data["nodes"]) == 5 and "attrs" not in data["nodes"][0]


def test_modules_import_what_is_there() -> None:
    files = viewer_files()
    for name, text in files.items():
        for imported in re.findall(r'from "\./([\w./]+)"', text.decode()):
            assert imported in files, name


def test_libraries_have_their_licences() -> None:
    folder = Path(module.__file__).parents[1] / "viewer/vendor"
    for path in folder.glob("*.js"):
        assert f"`{path.name}`" in (folder / "README.md").read_text()
        licence = folder / f"{path.name.partition('.')[0]}.LICENSE.txt"
        assert "Permission is hereby granted, free of charge" in licence.read_text()


@pytest.fixture
async def page() -> AsyncIterator[Any]:
    """A page of a browser of its own, without a network; what its console calls an error fails the test."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
    async with playwright.async_playwright() as browsers:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
        browser = await browsers.chromium.launch(executable_path=CHROMIUM, args=flags)
        page = await (await browser.new_context(offline=True)).new_page()
        page.set_default_timeout(30_000)
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        yield page
        await browser.close()
        assert not complaints


async def test_saved_page_folds_and_is_searched(page: Any, tmp_path: Path) -> None:
    await asyncio.to_thread(layers().show().save, tmp_path / "graph.html")
    await page.goto((tmp_path / "graph.html").as_uri())
    boxes = "() => Number(document.querySelector('canvas').dataset.boxes)"
    await page.wait_for_function(f"() => ({boxes})() === 4")
    await page.get_by_label("Find a node").fill("layer1/tanh")
    await page.get_by_role("button", name="layer1/tanh", exact=True).click()
    await page.wait_for_function(f"() => ({boxes})() === 6")
    await page.locator("dd:text-is('FP32, ?')").wait_for()
    await page.locator("dd:text-is('DT_FLOAT')").wait_for()
    # There is no run for which it could be chosen.
    assert await page.get_by_role("button", name="Fetch it").count() == 0


async def test_notebook_shows_the_page_in_a_frame(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    drawing = layers().show("layer1")
    shown = drawing._repr_html_()
    assert shown is not None and drawing._repr_svg_() is None
    await page.set_content(shown)
    frame = page.frame_locator("iframe")
    await frame.locator("canvas[data-boxes='3']").wait_for()
    await frame.get_by_label("Find a node").fill("square")
    await frame.get_by_role("button", name="layer1/square", exact=True).wait_for()
