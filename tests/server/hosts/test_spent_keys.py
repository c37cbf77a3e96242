"""Keys of requests whose hosts have ended."""

from __future__ import annotations

import pytest
from aexec_server.hosts import spent_keys
from aexec_server.hosts.spent_keys import SpentKeys


def test_keys_are_of_one_client() -> None:
    spent = SpentKeys()
    spent.add("a", [b"k"])
    spent.add("a", [b"k"])
    assert ("a", b"k") in spent and ("b", b"k") not in spent and ("a", b"other") not in spent


def test_keys_of_whoever_has_most_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spent_keys, "_MOST_KEYS", 10)
    spent = SpentKeys()
    spent.add("few", [b"k"])
    for number in range(100):
        spent.add("many", [b"%d" % number])
    assert ("few", b"k") in spent
    assert [n for n in range(100) if ("many", b"%d" % n) in spent] == list(range(91, 100))
