"""Lines, and records of comma-separated values, of files that are read in pieces."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec import errors
from aexec.io import text_records
from aexec.io.record import Compression
from aexec.io.text_records import CSVError, CSVFields, csv_records, lines

TEXT = st.text(st.sampled_from('ab,"\r\n'), max_size=40).map(str.encode)


@given(TEXT, st.integers(1, 7))
def test_lines_are_the_same_in_pieces_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, size: int
) -> None:
    path = tmp_path_factory.mktemp("lines") / "file"
    path.write_bytes(text)
    expected = [line.replace(b"\r", b"") for line in text.split(b"\n")]
    if not text.split(b"\n")[-1]:
        expected.pop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_records, "_CHUNK", size)
        assert list(lines(bytes(path))) == expected


@given(TEXT, st.integers(1, 7), st.booleans())
def test_records_are_the_same_in_pieces_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, size: int, uses_quotes: bool
) -> None:
    path = tmp_path_factory.mktemp("records") / "file"
    path.write_bytes(text)
    fields = CSVFields(b",", uses_quotes=uses_quotes)
    whole = list(csv_records(bytes(path), fields))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_records, "_CHUNK", size)
        assert list(csv_records(bytes(path), fields)) == whole


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (b"a", [[b"a"]]),
        (b"a,", [[b"a", b""]]),
        (b"\n\n", [[b""], [b""]]),
        (b"a\r\nb\rc\n", [[b"a"], [b"b"], [b"c"]]),
        (b'"a""b,\n",c\n', [[b'a"b,\n', b"c"]]),
        (b'"a"', [[b"a"]]),
    ],
)
def test_records_have_their_fields(tmp_path: Path, text: bytes, expected: list[list[bytes]]) -> None:
    (tmp_path / "file").write_bytes(text)
    assert list(csv_records(bytes(tmp_path / "file"), CSVFields(b",", uses_quotes=True))) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b'a"b,c\nd', "Unquoted fields cannot have quotes inside"),
        (b'"a"b",c\nd', "Quote inside a string has to be escaped by another quote"),
        (b'"a,c\nd', "Reached end of file without closing quoted field in record"),
    ],
)
def test_fields_that_break_the_rules_say_which(tmp_path: Path, text: bytes, complaint: str) -> None:
    (tmp_path / "file").write_bytes(text)
    first, *others = csv_records(bytes(tmp_path / "file"), CSVFields(b",", uses_quotes=True))
    assert first[0] == complaint and isinstance(first[0], CSVError)
    assert others in ([[b"d"]], [])


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.ZLIB])
def test_compressed_lines_are_read(tmp_path: Path, compression: Compression) -> None:
    text = b"".join(b"line %d\n" % number for number in range(30_000))
    compress = gzip.compress if compression is Compression.GZIP else zlib.compress
    (tmp_path / "file").write_bytes(compress(text))
    assert list(lines(bytes(tmp_path / "file"), compression)) == text.splitlines()


def test_line_that_does_not_fit_into_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(zlib.compress(bytes(1 << 20)))
    monkeypatch.setattr(text_records, "_UNCHECKED_BYTES", 1 << 19)
    monkeypatch.setattr(text_records, "available_memory", lambda: 1 << 18)
    with pytest.raises(errors.ResourceExhaustedError):
        list(lines(bytes(tmp_path / "file"), Compression.ZLIB))
