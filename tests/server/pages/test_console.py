"""The console, as a person uses it, in headless Chromium: a run is posted, appears, is cancelled, and disappears."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aexec_server.clients.tokens import new_token

from aexec.framework import dtypes
from tests.server.conftest import Api, Start, gate_graph
from tests.server.described import table
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# Nothing but this page is asked for, and nothing is shown.
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync""".split()

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")


async def test_pages_files_are_served_under_a_strict_policy(api: Api) -> None:
    files = [route.path for route in table() if route.response in ("Page", "PageFile")]
    assert "/console/console.js" in files and "/" in files
    for path in files:
        response, body = await api.raw("GET", path)
        policy = response.headers["Content-Security-Policy"]
        assert response.status == 200 and "default-src 'none'" in policy and "unsafe" not in policy
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        # What clients wrote is set as text, never as HTML, and nothing comes from elsewhere.
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word.encode() not in body, (path, word)
        assert b"http://" not in body.replace(b"http://www.w3.org/2000/svg", b"") and b"https://" not in body, path


@pytest.fixture
async def page() -> AsyncIterator[Any]:
    """A page of a browser of its own; what its console calls an error fails the test."""
    playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
    async with playwright.async_playwright() as browsers:
        browser = await browsers.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = await browser.new_page()
        page.set_default_timeout(20_000)
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda m: complaints.append(m.text) if "Content Security Policy" in m.text else None)
        yield page
        await browser.close()
        assert not complaints


def two_ways() -> GraphBuilder:
    """`y` is the square of `x`, and `s` goes through."""
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32, [None])
    g("y", "Square", "x", T=dtypes.float32)
    g.placeholder("s", dtypes.string, [])
    g("t", "Identity", "s", T=dtypes.string)
    return g


@needs_chromium
async def test_run_is_posted_appears_is_cancelled_and_disappears(start: Start, page: Any) -> None:
    gate = gates.Gate()
    api = await start(graphs={"slow": gate_graph(gate).graph(), "small": two_ways().graph()})
    await page.goto(str(api.client.make_url("/")))
    await page.get_by_role("button", name="slow").click()
    await page.locator("#session-heading:text-is('slow')").wait_for()
    await page.get_by_role("button", name="Run", exact=True).click()
    await gate.entered.wait()
    row = page.locator("#runs tr")
    await row.wait_for()
    await page.locator("#runs .waits:has-text('TestGate')").wait_for()
    await row.get_by_role("button", name="Cancel").click()
    await row.wait_for(state="detached")
    await page.locator("#run-error:has-text('cancelled in the console')").wait_for()
    assert gate.cancelled == 1

    # Another session is run, and its answer is shown as it is.
    await page.get_by_role("button", name="small").click()
    await page.locator("#session-heading:text-is('small')").wait_for()
    await page.get_by_label("s BYTES").fill("<img src=x onerror=alert(1)>")
    await page.get_by_label("x FP32").fill("[3]")
    await page.get_by_label("Trace it").check()
    await page.get_by_role("button", name="Run", exact=True).click()
    await page.locator("#answer:has-text('onerror=alert(1)>')").wait_for()
    await page.locator("#answer:has-text('[9]')").wait_for()
    assert await page.locator("img").count() == 0
    await page.locator("#timeline rect").first.wait_for()

    # The graph is drawn; a node is found, and its shape is told.
    await page.get_by_role("button", name="Show the graph").click()
    await page.locator(".working").wait_for(state="detached")
    await page.get_by_label("Find a node").fill("square")
    await page.get_by_role("button", name="y", exact=True).click()
    await page.locator(".about-node dd:has-text('FP32, ?')").wait_for()
    await page.locator(".about-node dd:has-text('DT_FLOAT')").wait_for()


def wide_and_deep() -> GraphBuilder:
    """Five thousand nodes in layers of ten, and a queue of three elements at most."""
    g = GraphBuilder()
    last = g.placeholder("x", dtypes.float32, [None])
    for layer in range(500):
        parts = [g(f"layer{layer}/t{i}", "Tanh", last, T=dtypes.float32) for i in range(9)]
        last = g(f"layer{layer}/sum", "AddN", *parts, T=dtypes.float32, N=9)
    g("queue", "FIFOQueueV2", component_types=[dtypes.float32], shapes=[[]], capacity=3)
    return g


@needs_chromium
async def test_large_graph_is_moved_about_in_and_queues_are_seen_filling(start: Start, page: Any) -> None:
    api = await start(graphs={"large": wide_and_deep().graph()}, allow_model_changes=True)
    await page.goto(str(api.client.make_url("/")))
    await page.locator("#session-heading:text-is('large')").wait_for()
    await page.get_by_role("button", name="Show the graph").click()
    canvas = page.locator("canvas")
    await canvas.wait_for()
    # Chosen by the keyboard, be it before it is laid out.
    await page.get_by_label("Find a node").fill("layer321/t7")
    await page.get_by_role("button", name="layer321/t7", exact=True).press("Enter")
    await page.locator(".about-node dd:has-text('FP32, ?')").wait_for()
    await page.locator(".working").wait_for(state="detached")

    async def drawn() -> str:
        return str(
            await page.evaluate(
                "() => new Promise(f => requestAnimationFrame(() => requestAnimationFrame(() => "
                "f(document.querySelector('canvas').toDataURL()))))"
            )
        )

    pictures = [await drawn()]
    for key in ("-", "ArrowDown", "0", "+"):
        await canvas.press(key)
        pictures.append(await drawn())
    assert len(set(pictures)) == len(pictures)

    for size in (1, 2):
        status, _ = await api.call("POST", "/v1/sessions/large/queues/queue:enqueue", {"components": [size]})
        assert status == 200
        await page.locator(f"tr:has-text('FIFOQueue'):has-text('{size} of 3')").wait_for()


@needs_chromium
async def test_token_opens_what_it_is_for(start: Start, page: Any) -> None:
    (reader, first), (admin, second) = new_token(), new_token()
    tokens = f'reader = {{sha256 = "{first}", scopes = ["run"]}}\nroot = {{sha256 = "{second}", scopes = ["admin"]}}\n'
    api = await start(graphs={"small": two_ways().graph()}, tokens=tokens)
    await page.goto(str(api.client.make_url("/")))
    await page.locator("#connection:has-text('needs a token')").wait_for()
    for token, sees_figures in ((reader, False), (admin, True)):
        await page.get_by_label("Token").fill(token)
        await page.get_by_role("button", name="Use").click()
        await page.locator("#connection:text-is('ready')").wait_for()
        await page.get_by_role("button", name="small").wait_for()
        await page.locator("#overview").wait_for(state="visible" if sees_figures else "hidden")


async def test_browsers_find_an_icon_wherever_they_are(api: Api) -> None:
    response, icon = await api.raw("GET", "/favicon.ico")
    assert response.status == 200 and response.content_type == "image/svg+xml" and icon.startswith(b"<svg")
