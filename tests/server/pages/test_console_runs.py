"""Runs in the console: each has a view of its own, with its answer or its error, its times and its timeline."""

from __future__ import annotations

import asyncio
from typing import Any

from aexec_server.clients.callers import ANYONE

from tests.server.conftest import Start, gate_graph, small_graph
from tests.server.pages.test_console import two_ways
from tests.support import gates


async def run_once(page: Any) -> None:
    await page.get_by_role("button", name="Run", exact=True).click()


async def test_run_is_posted_appears_is_cancelled_and_disappears(start: Start, page: Any) -> None:
    gate = gates.Gate()
    api = await start(graphs={"slow": gate_graph(gate).graph()})
    await page.goto(str(api.client.make_url("/#session/slow/run")))
    await run_once(page)
    await gate.entered.wait()
    await page.locator("#runs .waits:has-text('TestGate')").wait_for()
    await page.locator("#runs tr").get_by_role("button", name="Cancel").click()
    await page.locator("#runs tr").wait_for(state="detached")
    await page.locator(".run .badge:text-is('cancelled')").wait_for()
    await page.locator(".run .error:has-text('cancelled in the console')").wait_for()
    assert gate.cancelled == 1


async def test_run_is_cancelled_where_it_is_shown(start: Start, page: Any) -> None:
    gate = gates.Gate()
    api = await start(graphs={"slow": gate_graph(gate).graph()})
    await page.goto(str(api.client.make_url("/#session/slow/run")))
    await run_once(page)
    await gate.entered.wait()
    await page.locator(".run .badge:text-is('running')").wait_for()
    await page.locator(".run").get_by_role("button", name="Cancel").click()
    await page.locator(".run .badge:text-is('cancelled')").wait_for()
    assert await page.locator(".run .cancel").is_hidden()


async def test_answer_is_shown_as_text_and_nothing_of_it_under_a_later_run(start: Start, page: Any) -> None:
    api = await start(graphs={"small": two_ways().graph()})
    await page.goto(str(api.client.make_url("/#session/small/run")))
    await page.get_by_label("s BYTES").fill("<img src=x onerror=alert(1)>")
    await page.get_by_label("x FP32").fill("[3]")
    await run_once(page)
    await page.locator(".run pre:has-text('onerror=alert(1)>')").wait_for()
    await page.locator(".run pre:has-text('[9]')").wait_for()
    assert await page.locator("img").count() == 0

    await page.get_by_label("x FP32").fill('["no number"]')
    await run_once(page)
    await page.locator(".run .badge:text-is('failed')").wait_for()
    await page.locator(".run .error:has-text('INVALID_ARGUMENT')").wait_for()
    assert await page.locator(".run").count() == 1
    assert await page.locator(".run pre:visible").count() == 0

    # The earlier one is there as it was.
    await page.locator(".runs button:has-text('done')").click()
    await page.locator(".run pre:has-text('[9]')").wait_for()
    assert await page.locator(".run .error").inner_text() == ""


async def test_value_that_is_none_is_refused_at_its_field(start: Start, page: Any) -> None:
    api = await start(graphs={"small": two_ways().graph()})
    await page.goto(str(api.client.make_url("/#session/small/run")))
    await page.get_by_label("x FP32").fill("[3")
    await run_once(page)
    await page.get_by_role("alert").get_by_text("x is no JSON value").wait_for()
    assert await page.get_by_label("x FP32").get_attribute("aria-invalid") == "true"
    assert await page.locator(".run").count() == 0


async def test_traced_run_says_where_its_time_went(start: Start, page: Any) -> None:
    api = await start(graphs={"small": two_ways().graph()})
    await page.goto(str(api.client.make_url("/#session/small/run")))
    await page.get_by_label("x FP32").fill("[3]")
    await page.get_by_label("Trace it").check()
    await run_once(page)
    for phase in ("in line", "the step", "writing the answer"):
        await page.locator(f".run .legend li:has-text('{phase}')").wait_for()
    await page.locator(".run th:text-is('Square')").wait_for()

    # The timeline is zoomed by keys, and folds.
    bars = page.locator(".lane canvas")
    whole = await bars.get_attribute("data-to")
    await bars.press("+")
    await page.wait_for_function("whole => document.querySelector('.lane canvas').dataset.to !== whole", arg=whole)
    await bars.press("0")
    await page.wait_for_function("whole => document.querySelector('.lane canvas').dataset.to === whole", arg=whole)
    await page.locator(".lane summary").click()
    await bars.wait_for(state="hidden")
    await page.get_by_text("The longest as a table").click()
    await page.locator("details th:text-is('y')").wait_for()


async def test_run_of_another_client_is_followed_to_its_end(start: Start, page: Any) -> None:
    gate = gates.Gate()
    api = await start(graphs={"slow": gate_graph(gate).graph()})
    await page.goto(str(api.client.make_url("/")))
    await page.get_by_role("link", name="slow").wait_for()
    run = asyncio.create_task(api.run("slow", fetches=["y"], run_id="theirs"))
    await gate.entered.wait()
    await page.locator("#runs").get_by_role("button", name="theirs", exact=True).click()
    await page.locator(".run .badge:text-is('running')").wait_for()
    gate.open.set()
    assert (await run)[0] == 200
    await page.locator(".run .badge:text-is('done')").wait_for()


async def test_partial_run_is_set_up_continued_and_opened_elsewhere(start: Start, page: Any) -> None:
    api = await start()
    handle = await api.create(small_graph())
    await page.goto(str(api.client.make_url("/")) + f"#session/{handle}/partial")
    await page.get_by_label("Feeds").fill("x:0 m:0")
    await page.get_by_label("Fetches").fill("y:0 m_out:0")
    await page.get_by_role("button", name="Set up").click()
    await page.get_by_label("Value of x:0").fill("[5]")
    await page.get_by_label("Feed x:0").check()
    await page.get_by_label("Fetch y:0").check()
    await page.get_by_role("button", name="Continue").click()
    await page.locator(".parts pre:has-text('[25]')").wait_for()

    # From its handle another page goes on with it.
    (run,) = api.server.sessions.get(handle, ANYONE).runs.of(None)
    await page.reload()
    await page.locator("#partial-handle").fill(run.id)
    await page.locator("form:has(#partial-handle) button").click()
    await page.get_by_label("Feed a tensor").fill("m:0")
    await page.get_by_role("button", name="Feed it").last.click()
    await page.locator("textarea[data-name='m:0']").fill("[7]")
    await page.get_by_role("textbox", name="Fetches").last.fill("m_out:0")
    await page.get_by_role("button", name="Continue").click()
    await page.locator(".parts pre:has-text('[7]')").wait_for()
