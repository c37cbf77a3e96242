"""The console's live page and queues: figures and charts of the last hour, errors, and queues that fill and drain."""

from __future__ import annotations

from typing import Any

from aexec.framework import dtypes
from tests.server.conftest import Start
from tests.server.pages.test_console import two_ways
from tests.support.programs.graphs import GraphBuilder


async def test_figures_are_followed(start: Start, page: Any) -> None:
    api = await start(graphs={"small": two_ways().graph()})
    await api.run("small", feeds={"x": [1]}, fetches=["y"])
    api.server.history.add_point()
    await page.goto(str(api.client.make_url("/")))
    await page.locator(".tile:has-text('Runs'):has-text('1')").first.wait_for()
    assert await page.locator(".charts canvas").count() == 9
    codes = page.locator("section:has(h3:text-is('Answers of the last hour')) tbody")
    await codes.locator("tr:has-text('OK'):has-text('1')").wait_for()

    # A client's mistake is told from an error of the server's.
    await api.run("small", feeds={"x": ["a"]}, fetches=["y"])
    api.server.history.add_point()
    await codes.locator("tr:has-text('INVALID_ARGUMENT')").get_by_text("the client's").wait_for()
    await page.locator("tr:has-text('400 INVALID_ARGUMENT')").wait_for()
    await page.locator("section:has(h3:text-is('Memory')) tr:has-text('tensors')").first.wait_for()


async def test_connection_that_is_lost_is_said(start: Start, page: Any) -> None:
    api = await start(graphs={"small": two_ways().graph()})
    await page.goto(str(api.client.make_url("/")))
    await page.locator("#connection:text-is('ready')").wait_for()
    await api.client.close()
    await page.locator("#connection:text-is('no answer')").wait_for()


def with_queue() -> GraphBuilder:
    g = GraphBuilder()
    g("queue", "FIFOQueueV2", component_types=[dtypes.float32], shapes=[[]], capacity=3)
    return g


async def test_queues_are_seen_filling_fed_drained_and_closed(start: Start, page: Any) -> None:
    api = await start()
    handle = await api.create(with_queue())
    await page.goto(str(api.client.make_url("/")) + f"#session/{handle}/queues")
    status, _ = await api.call("POST", f"/v1/sessions/{handle}/queues/queue:enqueue", {"components": [8]})
    assert status == 200
    await page.locator("tr:has-text('FIFOQueue'):has-text('1 of 3')").wait_for()

    await page.get_by_label("Components").fill("[[5, 6]]")
    await page.get_by_label("Each row is an element").check()
    await page.get_by_role("button", name="Put in").click()
    await page.locator("tr:has-text('FIFOQueue'):has-text('3 of 3')").wait_for()
    await page.get_by_label("Elements", exact=True).fill("2")
    await page.get_by_role("button", name="Take out").click()
    await page.locator("pre:has-text('[8,5]')").wait_for()
    await page.locator("tr:has-text('FIFOQueue'):has-text('1 of 3')").wait_for()
    await page.get_by_role("button", name="Close the queue").click()
    await page.locator("tr:has-text('FIFOQueue'):has-text('closed')").wait_for()
    await page.get_by_role("button", name="Take out").click()
    await page.get_by_role("alert").get_by_text("OUT_OF_RANGE").wait_for()
