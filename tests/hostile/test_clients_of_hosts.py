"""Session hosts know from the front which client asks, also where there are no tokens."""

from __future__ import annotations

from aexec_server.handles import Handles

from tests.hostile.conftest import HostileServer

STRANGER = "127.0.0.2"
GRAPH = {"graph_def": {}}


def test_clients_of_hosts_are_told_apart_by_their_addresses(hostile_server: HostileServer) -> None:
    server = hostile_server(hosts=1, max_sessions=9, example=True)

    def created(address: str, **headers: str) -> tuple[int, str]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = server.call("POST", "/v1/sessions", GRAPH, named, address=address)
        return answer.status, answer.body.get("session_handle", "")

    # A key of one client is not that of another, who cannot say that it is the first one.
    mine = [created("127.0.0.1", Idempotency_Key="k") for _ in range(2)]
    assert mine[0] == mine[1]
    said = f"{'0' * 32} caller  127.0.0.1 run,manage - - -"
    theirs = created(STRANGER, Idempotency_Key="k", Aexec_Caller=said)
    assert theirs[0] == 201 and theirs[1] != mine[0][1]
    # One client leaves the last share to those who have none.
    for _ in range(6):
        assert created("127.0.0.1")[0] == 201
    assert created("127.0.0.1")[0] == created(STRANGER)[0] == 429
    assert created("127.0.0.3")[0] == 201
    # Nothing else changes for who has no token: no name is listed, and names that lead here by rebinding are refused.
    listed = server.call("GET", "/v1/sessions").body["sessions"]
    assert [one["session_handle"] for one in listed] == ["example"]
    assert server.call("GET", f"/v1/sessions/{mine[0][1]}", headers={"Host": "evil.example"}).status == 403
    # A handle of an earlier start leads to a host of the same name, or to none.
    for handle in (Handles(f"{mine[0][1].partition('-')[0]}-").new(), Handles("ff-").new()):
        gone = server.call("GET", f"/v1/sessions/{handle}")
        assert (gone.status, gone.body["reason"]) == (404, "server_restarted")
