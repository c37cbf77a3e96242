"""How an optional value is encoded as a variant."""

from __future__ import annotations

import numpy as np
import pytest

from aexec import errors
from aexec.framework.wire import variant
from aexec.framework.wire.variant import VariantTensorData
from aexec.resources.optional_value import OptionalValue


@pytest.mark.parametrize("components", [None, (), (np.float32(1), np.array([b"a"], object))])
def test_optional_value_comes_back(components: tuple[object, ...] | None) -> None:
    message = variant.encode(OptionalValue(components))
    assert message.type_name == "tensorflow::data::Optional"
    again = variant.decode(message)
    assert isinstance(again, OptionalValue) and again.components == components


@pytest.mark.parametrize("metadata", [b"", b"\x01\x01"])
def test_invalid_optional_is_refused(metadata: bytes) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        variant.decode(VariantTensorData("tensorflow::data::Optional", metadata).to_proto())
