"""The page at /docs, in headless Chromium: a reader sends a call, and sees the answer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.conftest import Start, small_graph


@pytest.mark.time_limit(300)
async def test_call_is_tried_with_the_values_of_its_example(page: Any, start: Start) -> None:
    api = await start(graphs={"demo": small_graph().graph()})
    await page.goto(str(api.client.make_url("/docs")))
    call = page.locator("#post_v1_sessions_session_run")
    await call.locator("summary").click()
    form = call.locator(".try")
    assert await form.locator("label", has_text="session (path)").locator("input").input_value() == "demo"
    await form.locator("textarea").fill('{"feeds": {"x": [3]}, "fetches": ["y"]}')
    await form.locator("button", has_text="Send").click()
    await form.locator("pre", has_text='"outputs"').wait_for()
    assert "200 OK" in await form.locator("[role=status]").inner_text()
    assert "9" in await form.locator("pre").inner_text()


@pytest.mark.time_limit(300)
async def test_answer_without_an_end_is_shown_and_stopped(page: Any, start: Start) -> None:
    api = await start(graphs={"demo": small_graph().graph()})
    await page.goto(str(api.client.make_url("/docs")))
    call = page.locator("#get_v1_sessions_session_events")
    await call.locator("summary").click()
    form = call.locator(".try")
    await form.locator("button", has_text="Send").click()
    await form.locator("pre", has_text="event: session").wait_for()
    await form.locator("button", has_text="Stop").click()
    await form.locator("[role=status]", has_text="stopped").wait_for()
