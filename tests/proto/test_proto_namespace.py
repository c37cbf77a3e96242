"""The flat namespace of aexec.proto, and that the generated code is the one of protos/."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from aexec import proto

ROOT = Path(__file__).parents[2]


def test_generated_code_belongs_to_the_sources() -> None:
    """Fails after an edit of either side that scripts/gen-protos did not make."""
    listed = {}
    for line in (ROOT / "aexec/proto/SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        listed[name] = digest
    files = [*ROOT.glob("protos/**/*.proto"), *ROOT.glob("aexec/proto/**/*.py*")]
    found = {
        path.relative_to(ROOT).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.suffix in {".proto", ".py", ".pyi"}
    }
    del found["aexec/proto/__init__.py"]  # written by hand
    assert found == listed, "run scripts/gen-protos"


def test_stub_names_what_the_package_finds() -> None:
    stub = (ROOT / "aexec/proto/__init__.pyi").read_text()
    for name in proto.__all__:
        assert f" import {name} as {name}\n" in stub
        assert getattr(proto, name).DESCRIPTOR.name == name
        assert name in dir(proto)


def test_only_used_modules_are_imported() -> None:
    program = """
import sys
from aexec import proto
assert "aexec.proto.protobuf.meta_graph_pb2" not in sys.modules
proto.MetaGraphDef
assert "aexec.proto.protobuf.meta_graph_pb2" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_wrong_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no message or enum 'GraphDeff'"):
        getattr(proto, "GraphDeff")  # noqa: B009
