"""The session or service of a gRPC call, from the first bytes of its request."""

from __future__ import annotations

import pytest
from aexec_server.rpc.first_text import LOOKED_AT, first_text

from aexec import proto
from aexec.errors import InvalidArgumentError


def test_handle_is_read_from_the_first_field() -> None:
    assert first_text(proto.RunStepRequest(session_handle="abc", fetch=["y:0"]).SerializeToString()) == "abc"
    assert first_text(proto.RunStepRequest(fetch=["y:0"]).SerializeToString()) == ""
    assert first_text(b"") == ""


def test_request_of_many_fields_is_not_read_to_its_end() -> None:
    """What follows the first fields is no message: whoever read it would say so."""
    number = b"\x78\x01"  # field 15 is 1
    assert first_text(proto.RunStepRequest(session_handle="abc").SerializeToString() + number * 3 + b"\xff") == "abc"
    assert first_text(number * LOOKED_AT + b"\xff") == ""


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05abc", b"\x0a\x01\xff"])
def test_request_that_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match="no message"):
        first_text(data)
