"""With session hosts the front process looks at tokens, and nobody else can say who asks."""

from __future__ import annotations

import base64
import signal
from pathlib import Path

import pytest
from aexec_server.clients.tokens import new_token_line

from tests.hostile.conftest import HostileServer
from tests.hostile.test_hosts import square
from tests.hostile.test_messages import GRAPH


@pytest.mark.parametrize("hosts", [2, "auto"])
def test_owners_quotas_and_reloading(hostile_server: HostileServer, tmp_path: Path, hosts: int | str) -> None:
    tokens, lines = zip(
        *[new_token_line(name, ["run", "manage"], {"max_sessions": 1}) for name in ("alice", "bob")], strict=True
    )
    file = tmp_path / "tokens.toml"
    file.write_text("\n".join(lines))
    file.chmod(0o600)
    server = hostile_server(hosts=hosts, access_log=True, token_file=file, example=True)
    alice, bob = ({"Authorization": f"Bearer {token}"} for token in tokens)
    graph = {"graph_def": base64.b64encode(square().graph_def.SerializeToString()).decode()}
    assert server.call("GET", "/livez").status == 200
    assert server.call("POST", "/v1/sessions", graph).status == 401
    made = server.call("POST", "/v1/sessions", graph, alice)
    assert made.status == 201
    path = f"/v1/sessions/{made.body['session_handle']}"
    run = {"feeds": {"x": [3.0]}, "fetches": ["y"]}
    assert server.call("POST", f"{path}:run", run, alice).body["outputs"] == {"y": [9.0]}
    assert server.call("POST", f"{path}:run", run, bob).status == 404
    # Lists have what a caller has, whichever host it is in.
    named = server.call("POST", "/v1/sessions?name=bobs", base64.b64decode(graph["graph_def"]), bob | GRAPH)
    assert named.status == 201
    for headers, handle in ((alice, made.body["session_handle"]), (bob, "bobs")):
        listed = server.call("GET", "/v1/sessions", headers=headers)
        assert [one["session_handle"] for one in listed.body["sessions"]] == ["example", handle]
    assert server.call("GET", "/v1/sessions").status == 401
    # A client's own word for who it is, is not heard.
    said = {"Aexec-Caller": f"{'0' * 32} caller alice admin - - -"}
    assert server.call("GET", path, headers=said).status == 401
    assert server.call("GET", "/v1/sessions", headers=said).status == 401
    assert server.call("GET", path, headers=bob | said).status == 404
    # The other host is told what this one has.
    server.until(lambda: server.call("POST", "/v1/sessions", graph, alice).status == 429)
    # A token that is taken out of the file is not known any more.
    file.write_text(lines[1])
    server.process.send_signal(signal.SIGHUP)
    server.until(lambda: server.call("GET", path, headers=alice).status == 401)
    assert server.call("GET", path, headers=bob).status == 404
    assert not any(token in server.log for token in tokens)
