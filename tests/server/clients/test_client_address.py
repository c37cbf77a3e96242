"""By what clients without tokens are told apart."""

from __future__ import annotations

import pytest
from aexec_server.clients.client_address import client_at, peer_host


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::1", "::/64"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("/run/aexec.sock", ""),
    ],
)
def test_client_is_an_address_or_a_network_of_ipv6(host: str, client: str) -> None:
    assert client_at(host) == client


def test_peer_of_no_connection_has_no_address() -> None:
    assert peer_host(None) == ""
