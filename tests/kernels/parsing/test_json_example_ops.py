"""Examples in JSON: what TensorFlow writes for them, and what is refused."""

from __future__ import annotations

import pytest

from aexec import proto
from tests.kernels.answer_tables import INVALID, texts
from tests.kernels.harness import run_op


@pytest.mark.parametrize(
    ("text", "serialized"),
    [
        (
            '{"features":{"feature":{"a":{"int64List":{"value":[1,"-2"]}}}}}',
            b"\n\x16\n\x14\n\x01a\x12\x0f\x1a\r\x08\x01\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ),
        (
            '{"features":{"feature":{"a":{"floatList":{"value":[1.5]}}}}}',
            b"\n\x0e\n\x0c\n\x01a\x12\x07\x12\x05\r\x00\x00\xc0?",
        ),
        (
            '{"features":{"feature":{"a":{"bytes_list":{"value":["YWI="]}}}}}',
            b"\n\r\n\x0b\n\x01a\x12\x06\n\x04\n\x02ab",
        ),
        ('{"features":{"feature":{"z":{},"a":{}}}}', b"\n\x0e\n\x05\n\x01z\x12\x00\n\x05\n\x01a\x12\x00"),
        ('{"features":{}}', b"\n\x00"),
        ("{}", b""),
    ],
)
def test_json_to_wire(text, serialized):
    got = run_op("DecodeJSONExample", [texts(text, shape=(1,))])
    assert got.tolist() == [serialized]
    proto.Example.FromString(serialized)


@pytest.mark.parametrize(
    "text",
    ['{"x":1}', "{", "", "[]", b"\xff", '{"features":{"feature":{"a":{"int64List":{"value":["b"]}}}}}', "[" * 100_000],
)
def test_invalid_json_examples_are_refused(text):
    with pytest.raises(INVALID, match="Error while parsing JSON: "):
        run_op("DecodeJSONExample", [texts(text)])
