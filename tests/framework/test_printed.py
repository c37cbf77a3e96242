"""What graphs print: as much as a source may in a second; or kept for the run."""

from __future__ import annotations

import asyncio

import pytest

from aexec.framework import printed
from aexec.framework.printed import PrintRate, Prints, print_text, set_printer


@pytest.fixture
def seen() -> list[tuple[str, str]]:
    """What was printed since."""
    texts: list[tuple[str, str]] = []
    set_printer(lambda stream, text: texts.append((stream, text)))
    return texts


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in a list of one."""
    time = [1000.0]
    monkeypatch.setattr(printed, "monotonic", lambda: time[0])
    return time


def test_all_text_is_printed_without_a_rate(seen: list[tuple[str, str]]) -> None:
    for _ in range(1000):
        print_text("stdout", "x" * 1000)
    assert len(seen) == 1000


async def test_beyond_the_rate_it_is_counted(seen: list[tuple[str, str]], now: list[float]) -> None:
    rate = PrintRate("session 7", 1000, asyncio.get_running_loop())
    for _ in range(100):
        rate("stderr", "some text\n")
    assert seen == [("stderr", "some text\n")] * 9  # with what each line takes besides
    rate.close()
    left_out = "session 7: 91 texts of 910 bytes were left out: it may print 1000 bytes a second\n"
    assert seen[9:] == [("stderr", left_out)]
    now[0] += 1
    rate("stderr", "more\n")
    rate.close()
    assert seen[10:] == [("stderr", "more\n")]


async def test_dropped_text_is_reported_after_the_second(
    seen: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(printed, "_SECOND", 0.01)
    told = asyncio.Event()
    rate = PrintRate("session 7", 500, asyncio.get_running_loop())
    set_printer(lambda stream, text: (seen.append((stream, text)), "left out" in text and told.set()))
    await asyncio.to_thread(lambda: [rate("stdout", "x" * 1000) for _ in range(3)])
    await told.wait()
    assert seen == [("stderr", "session 7: 3 texts of 3000 bytes were left out: it may print 500 bytes a second\n")]


def test_run_keeps_the_beginning() -> None:
    prints = Prints(10)
    for text in ("one\n", "two\n", "three\n", "four\n"):
        prints("stderr", text)
    assert (prints.text, prints.left_out) == ("one\ntwo\nth", 9)
