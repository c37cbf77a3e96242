"""The console's graphs: they fold, are searched, coloured by a traced run, and choose what a run feeds and fetches."""

from __future__ import annotations

from typing import Any

from aexec.framework import dtypes
from tests.server.conftest import Start
from tests.server.pages.test_console import two_ways
from tests.support.programs.graphs import GraphBuilder

BOXES = "() => Number(document.querySelector('.graph canvas').dataset.boxes)"


def wide_and_deep() -> GraphBuilder:
    """Five thousand nodes in layers of ten."""
    g = GraphBuilder()
    last = g.placeholder("x", dtypes.float32, [None])
    for layer in range(500):
        parts = [g(f"layer{layer}/t{i}", "Tanh", last, T=dtypes.float32) for i in range(9)]
        last = g(f"layer{layer}/sum", "AddN", *parts, T=dtypes.float32, N=9)
    return g


def calling() -> GraphBuilder:
    """`y` is twice `x`, by a function."""
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32, [None])
    function = g.graph_def.library.function.add()
    function.signature.name = "Twice"
    function.signature.input_arg.add(name="a", type=dtypes.float32.enum)
    function.signature.output_arg.add(name="b", type=dtypes.float32.enum)
    node = function.node_def.add(name="sum", op="AddV2", input=["a", "a"])
    node.attr["T"].type = dtypes.float32.enum
    function.ret["b"] = "sum:z:0"
    g("y", "PartitionedCall", "x", Tin=[dtypes.float32], Tout=[dtypes.float32], f="Twice")
    return g


async def open_graph(start: Start, page: Any, graph: GraphBuilder) -> None:
    api = await start(graphs={"g": graph.graph()})
    await page.goto(str(api.client.make_url("/#session/g/graph")))
    await page.locator(".graph").wait_for()
    await page.locator(".graph .working").wait_for(state="hidden")
    await page.wait_for_function(f"() => ({BOXES})() > 0")


async def find(page: Any, text: str, name: str) -> None:
    await page.get_by_label("Find a node").fill(text)
    await page.get_by_role("button", name=name, exact=True).press("Enter")


async def drawn(page: Any) -> str:
    return str(
        await page.evaluate(
            "() => new Promise(f => requestAnimationFrame(() => requestAnimationFrame(() => "
            "f(document.querySelector('.graph canvas').toDataURL()))))"
        )
    )


async def test_large_graph_opens_folded_and_is_moved_about_in(start: Start, page: Any) -> None:
    await open_graph(start, page, wide_and_deep())
    folded = await page.evaluate(BOXES)
    assert 1 < folded <= 48
    await find(page, "layer321/t7", "layer321/t7")
    await page.locator(".about-node dd:has-text('FP32, ?')").wait_for()
    await page.wait_for_function(f"most => ({BOXES})() > most", arg=folded)
    canvas = page.locator(".graph canvas")
    pictures = [await drawn(page)]
    for key in ("-", "ArrowDown", "0", "+"):
        await canvas.press(key)
        pictures.append(await drawn(page))
    assert len(set(pictures)) == len(pictures)
    await page.get_by_role("button", name="Fold all").click()
    await page.wait_for_function(f"most => ({BOXES})() === most", arg=folded)


async def test_groups_are_unfolded_by_the_keyboard(start: Start, page: Any) -> None:
    await open_graph(start, page, wide_and_deep())
    await find(page, "layer7/", "layer7/")
    await page.get_by_role("button", name="Unfold it").press("Enter")
    await page.get_by_role("button", name="Fold it").wait_for()
    await page.get_by_role("button", name="sum", exact=True).click()
    await page.locator(".about-node dd:text-is('AddN')").wait_for()


async def test_functions_are_unfolded_in_the_node_that_calls_them(start: Start, page: Any) -> None:
    await open_graph(start, page, calling())
    folded = await page.evaluate(BOXES)
    await find(page, "PartitionedCall", "y")
    await page.get_by_role("button", name="Unfold its functions").click()
    await page.wait_for_function(f"most => ({BOXES})() === most + 4", arg=folded)
    await find(page, "AddV2", "sum")
    await page.locator(".about-node dd:text-is('DT_FLOAT')").wait_for()
    # A run cannot name what is in a function.
    assert await page.get_by_role("button", name="Fetch it").count() == 0


async def test_run_is_chosen_in_the_graph_and_its_times_and_values_are_seen_there(start: Start, page: Any) -> None:
    await open_graph(start, page, two_ways())
    await find(page, "Square", "y")
    await page.locator(".about-node dd:has-text('DT_FLOAT')").wait_for()
    await page.get_by_role("button", name="Fetch it").click()
    await page.get_by_role("button", name="x", exact=True).click()
    await page.get_by_role("button", name="Feed it").click()
    await page.get_by_role("button", name="To the run").click()
    await page.get_by_label("x:0", exact=True).fill("[4]")
    await page.get_by_label("Trace it").check()
    await page.get_by_role("button", name="Run", exact=True).click()
    await page.locator(".run pre:has-text('[16]')").wait_for()
    await page.locator(".lane").wait_for()

    await page.get_by_role("tab", name="Graph").click()
    await page.locator(".graph .legend li:has-text('and more')").wait_for()
    await find(page, "Square", "y")
    await page.locator(".about-node dt:text-is('Time')").wait_for()
    await page.get_by_role("button", name="Its value").click()
    await page.locator(".about-node pre:has-text('[16]')").wait_for()
    await page.get_by_label("Colours", exact=True).select_option("device")
    await page.locator(".graph .legend li:has-text('CPU:0')").wait_for()
