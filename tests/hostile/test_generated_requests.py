"""Ten thousand requests that schemathesis makes of the API's description, good and bad ones, to servers of their own.

They come in parts, each about some of the calls, that can be run by themselves (`-k part3`).  None may be answered with
a fault of the server: 500, or no answer.  501, 503 and 504 are answers, with their reason.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from tests.hostile.conftest import HostileServer
from tests.server.described import fits, route_of
from tests.server.pages.test_console import two_ways

PARTS, REQUESTS = 10, 1000  # of each
MAY_ANSWER = {501, 503, 504}
_MESSAGES = [b"", b"\n\x01x", two_ways().graph_def.SerializeToString()]


def _realistic(value: Any, numbers: random.Random) -> Any:
    """The same body about tensors that are there."""
    if isinstance(value, list):
        return [_realistic(item, numbers) for item in value]
    if not isinstance(value, dict):
        return value
    named = {key: _realistic(item, numbers) for key, item in value.items()}
    if "name" in named:
        named["name"] = numbers.choice(["x", "y", "s", "x:0", "y:0", "seconds"])
    for key in ("feeds", "inputs"):
        if isinstance(named.get(key), dict):
            named[key] = {numbers.choice(["x", "s", "x:0", "seconds"]): item for item in named[key].values()}
    return named


_AS_MANY = settings(max_examples=100, database=None, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS), ids="part{}".format)
def test_no_generated_request_is_a_fault_of_the_server(hostile_server: HostileServer, part: int) -> None:
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    both_modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    server = hostile_server(example=True, max_timeout="1s")
    document = server.call("GET", "/openapi.json").body
    for media in ("application/x-protobuf", "application/octet-stream"):
        schemathesis.openapi.media_type(media, st.sampled_from(_MESSAGES) | st.binary(max_size=200))
    schema = schemathesis.openapi.from_dict(document)
    operations = [result.ok() for result in schema.get_all_operations()][part::PARTS]
    statuses: Counter[int] = Counter()
    wrong: list[str] = []

    def ask(case: Any, real: bool, seed: int) -> None:
        numbers = random.Random(seed)
        if real:
            places = {"session": numbers.choice(["example", handle]), "model": "example", "version": "1"}
            case.path_parameters = (case.path_parameters or {}) | {
                name: value for name, value in places.items() if name in (case.path_parameters or {})
            }
            if isinstance(case.body, dict):
                case.body = _realistic(case.body, numbers)
        response = case.call(base_url=f"http://127.0.0.1:{server.port}", timeout=20)
        status = response.status_code
        statuses[status] += 1
        request = f"{case.method} {response.request.path_url} {str(response.request.body)[:200]}"
        if status >= 500 and status not in MAY_ANSWER:
            wrong.append(f"{request}: {status} {response.text[:300]}")
        elif status >= 400 and "json" in response.headers.get("Content-Type", "") and case.method != "HEAD":
            why = fits("Error", response.json())
            if why is not None and route_of(case.method, response.request.path_url) is not None:
                wrong.append(f"{request}: {why}")

    while statuses.total() < REQUESTS:
        for operation in operations:
            handle = server.create(two_ways())
            for mode in both_modes:
                test = given(operation.as_strategy(generation_mode=mode), st.booleans(), st.integers(0, 2**32))(ask)
                with contextlib.suppress(Unsatisfiable):  # there is nothing that could be wrong with it
                    _AS_MANY(test)()
    print(f"{statuses.total()} requests: {dict(sorted(statuses.items()))}")
    assert not wrong, "\n".join(wrong[:20])
    assert statuses.total() >= REQUESTS and statuses[200] > REQUESTS / 20
