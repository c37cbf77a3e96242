"""Pages of headless Chromium."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# Nothing but this page is asked for, and nothing is shown.
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync""".split()

NewPage = Callable[..., Awaitable[Any]]


@pytest.fixture
async def new_page() -> AsyncIterator[NewPage]:
    """Makes pages in browser contexts of their own; what their consoles call an error fails the test."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
    complaints: list[str] = []
    async with AsyncExitStack() as stack:
        browsers = await stack.enter_async_context(playwright.async_playwright())
        browser = await browsers.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        stack.push_async_callback(browser.close)

        async def make(**context: Any) -> Any:
            page = await (await browser.new_context(locale="en-US", **context)).new_page()
            page.set_default_timeout(30_000)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("console", lambda m: complaints.append(m.text) if "Content Security Policy" in m.text else None)
            return page

        yield make
    assert not complaints


@pytest.fixture
async def page(new_page: NewPage) -> Any:
    """A page of usual size."""
    return await new_page()
