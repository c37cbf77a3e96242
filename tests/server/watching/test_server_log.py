"""What clients put into the log of a server stays in one line."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
from aexec_server.watching import server_log

import aexec
from aexec import hosting


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What a server's log has got."""
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers = []
    server_log.begin_log()
    yield stream
    root.handlers, root.level = before, level
    hosting.set_printer(None)


async def test_printed_text_is_a_line_without_escapes(written: io.StringIO) -> None:
    with aexec.Graph() as graph:
        text = aexec.placeholder("string", [], name="text")
        for stream in ("stderr", "stdout", "log(warning)"):
            aexec.ops.print_v2(text, output_stream=stream, name=stream.strip(")").replace("(", "_"))
    async with aexec.Session(graph) as session:
        for target, name in (
            ("stderr", "aexec_server.printed INFO"),
            ("stdout", "aexec_server.printed INFO"),
            ("log_warning", "aexec WARNING"),
        ):
            await session.run([], {"text:0": "a\n2026 root INFO feigned\x1b[2J\u202e ü"}, targets=[target])
            line = written.getvalue()
            assert line.endswith(
                f" {name} a\\n2026 root INFO feigned\\x1b[2J\\u202e ü" + ("\\n" if "log" in target else "") + "\n"
            )
            assert line.count("\n") == 1
            written.truncate(written.seek(0))


def test_tracebacks_keep_their_lines(written: io.StringIO) -> None:
    try:
        raise ValueError("x")
    except ValueError:
        logging.getLogger("aexec_server").exception("failed")
    first, *_, last = written.getvalue().splitlines()
    assert first.endswith("aexec_server ERROR failed")
    assert last == "ValueError: x"


def test_json(written: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", written)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    server_log.begin_log("DEBUG", "json")
    logger = logging.getLogger("aexec_server")
    server_log.log_fields(logger, "two\nlines \x1b[2J", {"run_id": "r1", "trace_id": "", "seconds": 0.5})
    try:
        raise ValueError("x")
    except ValueError:
        logger.exception("failed")
    first, second = map(json.loads, written.getvalue().splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "INFO",
        "logger": "aexec_server",
        "message": "two\nlines \x1b[2J",
        "run_id": "r1",
        "seconds": 0.5,
    }
    assert second["message"] == "failed" and "ValueError: x" in second["traceback"]
    assert "\x1b" not in written.getvalue()
