"""The console's files, and what leads to its pages: sessions, handles, tokens, uploads, widths and colours."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest
from aexec_server.clients.tokens import new_token
from aexec_server.pages.page_response import STATIC

from aexec.framework import dtypes
from tests.server.conftest import Api, Start
from tests.server.described import table
from tests.server.pages.conftest import NewPage
from tests.support.programs.graphs import GraphBuilder

STATIC_FOLDER = Path(__file__).parents[3] / "server/aexec_server/static"
MOST_BYTES = 300_000
# A copy of axe-core's `axe.min.js`, which the project does not have; without one its checks are skipped.
AXE = os.environ.get("AEXEC_TEST_AXE")


async def test_pages_files_are_served_under_a_strict_policy(api: Api) -> None:
    files = [route.path for route in table() if route.response in ("Page", "PageFile")]
    assert {"/", "/console/console.js", "/console/vendor/uplot.css"} <= set(files)
    for path in files:
        response, body = await api.raw("GET", path)
        policy = response.headers["Content-Security-Policy"]
        assert response.status == 200 and "default-src 'none'" in policy and "unsafe" not in policy
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        # What clients wrote is set as text, never as HTML, and nothing comes from elsewhere.
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word.encode() not in body, (path, word)
        if "/vendor/" not in path:
            assert b"http://" not in body.replace(b"http://www.w3.org/2000/svg", b"") and b"https://" not in body, path


def test_pages_are_small() -> None:
    assert sum(map(len, STATIC.values())) <= MOST_BYTES


def test_what_others_wrote_has_its_licence_and_version() -> None:
    folder = STATIC_FOLDER / "vendor"
    about = (folder / "README.md").read_text()
    for path in folder.glob("*.*s"):
        assert f"`{path.name}`" in about
        licence = folder / f"{path.name.partition('.')[0]}.LICENSE.txt"
        assert "Permission is hereby granted, free of charge" in licence.read_text()


def two_ways() -> GraphBuilder:
    """`y` is the square of `x`, and `s` goes through."""
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32, [None])
    g("y", "Square", "x", T=dtypes.float32)
    g.placeholder("s", dtypes.string, [])
    g("t", "Identity", "s", T=dtypes.string)
    return g


async def test_token_opens_what_it_is_for(start: Start, page: Any) -> None:
    (reader, first), (admin, second) = new_token(), new_token()
    tokens = f'reader = {{sha256 = "{first}", scopes = ["run"]}}\nroot = {{sha256 = "{second}", scopes = ["admin"]}}\n'
    api = await start(graphs={"small": two_ways().graph()}, tokens=tokens)
    await page.goto(str(api.client.make_url("/")))
    await page.locator("#connection:has-text('needs a token')").wait_for()
    for token, sees_figures in ((reader, False), (admin, True)):
        await page.get_by_label("Token").fill(token)
        await page.get_by_role("button", name="Use").click()
        await page.locator(f"#connection:text-is('{'ready' if sees_figures else 'connected'}')").wait_for()
        await page.get_by_role("link", name="small").wait_for()
        await page.locator(".charts").wait_for(state="visible" if sees_figures else "hidden")


async def test_session_is_opened_by_its_handle_and_leaves_when_it_is_deleted(api: Api, page: Any) -> None:
    handle = await api.create(two_ways())
    await page.goto(str(api.client.make_url("/")))
    await page.get_by_label("Open by handle").fill(handle)
    await page.get_by_role("button", name="Open").click()
    await page.locator(f"#session-heading:text-is('{handle}')").wait_for()
    await page.reload()
    await page.locator(f"#session-heading:text-is('{handle}')").wait_for()
    await api.call("DELETE", f"/v1/sessions/{handle}")
    await page.get_by_text("This session is closed.").first.wait_for()


async def test_model_that_is_loaded_again_is_shown_again(start: Start, page: Any) -> None:
    api = await start(allow_model_changes=True)
    content = base64.b64encode(two_ways().graph_def.SerializeToString()).decode()

    async def change(what: str, **parameters: str) -> None:
        status, _ = await api.call("POST", f"/v2/repository/models/m/{what}", {"parameters": parameters})
        assert status == 200

    await change("load", **{"file:1/model.graphdef": content})
    await page.goto(str(api.client.make_url("/#session/m/run")))
    await page.locator("#session-heading:text-is('m')").wait_for()
    await change("unload")
    await page.get_by_text("This session is closed.").first.wait_for()
    await change("load", **{"file:1/model.graphdef": content})
    await page.locator("section > .error").wait_for(state="detached")
    await page.get_by_label("x FP32").wait_for()


async def test_pages_are_in_the_browsers_history(start: Start, page: Any) -> None:
    api = await start(graphs={"small": two_ways().graph()})
    await page.goto(str(api.client.make_url("/#session/small/queues")))
    await page.get_by_role("tab", name="Queues", selected=True).wait_for()
    await page.get_by_role("tab", name="Queues").press("ArrowLeft")
    await page.get_by_role("tab", name="Graph", selected=True).wait_for()
    await page.get_by_role("link", name="Live").click()
    await page.get_by_role("heading", name="Live").wait_for()
    await page.go_back()
    await page.get_by_role("tab", name="Graph", selected=True).wait_for()


async def test_page_that_was_asked_for_last_is_shown(start: Start, page: Any) -> None:
    api = await start(graphs={"one": two_ways().graph(), "other": two_ways().graph()})
    await page.goto(str(api.client.make_url("/")))
    await page.get_by_role("link", name="one").wait_for()
    await page.evaluate(
        "() => { for (const name of ['one', 'other', 'one', 'other']) location.hash = `#session/${name}` }"
    )
    await page.locator("#session-heading:text-is('other')").wait_for()
    await page.locator("#sessions a[aria-current=true]:has-text('other')").wait_for()
    assert await page.locator("main > section:visible").count() == 1


async def test_graph_is_uploaded_as_a_session_and_where_allowed_as_a_model(
    start: Start, new_page: NewPage, tmp_path: Path
) -> None:
    file = tmp_path / "small.pb"
    file.write_bytes(two_ways().graph_def.SerializeToString())
    for allowed in (False, True):
        api = await start(allow_model_changes=allowed)
        page = await new_page()
        await page.goto(str(api.client.make_url("/")))
        await page.get_by_text("Upload a graph").click()
        await page.get_by_label("GraphDef file").set_input_files(file)
        model = page.locator("#upload-kind option[value=model]")
        await page.locator("#connection:text-is('ready')").wait_for()
        assert await model.is_disabled() is not allowed
        if allowed:
            await page.get_by_label("As a").select_option("model")
        await page.get_by_label("Name").fill("sent")
        await page.get_by_role("button", name="Upload").click()
        await page.locator("#session-heading:text-is('sent')").wait_for()
        assert api.hosted("sent").listed is allowed


@pytest.mark.parametrize("width", [390, 800, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_pages_fit_every_width(start: Start, new_page: NewPage, width: int, scheme: str) -> None:
    api = await start(graphs={"small": two_ways().graph()})
    api.server.history.add_point()
    page = await new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=AXE is not None)
    for address in ("#live", *[f"#session/small/{tab}" for tab in ("run", "graph", "queues", "partial")]):
        await page.goto(str(api.client.make_url("/")) + address)
        await page.locator("main h2:visible").wait_for()
        if address.endswith("graph"):
            await page.locator(".graph").wait_for()
            await page.locator(".working").wait_for(state="hidden")
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
        if AXE is not None:
            await page.add_script_tag(content=Path(AXE).read_text())
            faults = await page.evaluate("axe.run(document).then(r => r.violations.map(v => [v.impact, v.id]))")
            assert [fault for fault in faults if fault[0] in ("serious", "critical")] == [], address


async def test_browsers_find_an_icon_wherever_they_are(api: Api) -> None:
    response, icon = await api.raw("GET", "/favicon.ico")
    assert response.status == 200 and response.content_type == "image/svg+xml" and icon.startswith(b"<svg")
