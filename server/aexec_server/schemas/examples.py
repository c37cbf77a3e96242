"""`EXAMPLES`: an example of each call of the API, as a server has answered it.

The file examples.json is recorded by the tests (`tests/server/schemas/api_examples.py`), which also compare it with
what a server answers now.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["EXAMPLES_PATH", "Example", "examples"]

EXAMPLES_PATH = Path(__file__).with_name("examples.json")

# `parameters` by name, `request`, `status`, `media` and `answer`; without those that the call has not.
Example = Mapping[str, Any]


@cache
def examples() -> Mapping[str, Example]:
    """Return the examples by method and path; those that are answered later have ` later` after it."""
    found: dict[str, Example] = json.loads(EXAMPLES_PATH.read_text("utf-8"))
    return found
