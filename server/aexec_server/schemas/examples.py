"""`EXAMPLES`: an example of each call of the API, as a server has answered it.

The file examples.json is recorded by the tests (`tests/server/schemas/api_examples.py`), which also compare it with
what a server answers now.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["EXAMPLES", "EXAMPLES_PATH", "Example"]

EXAMPLES_PATH = Path(__file__).with_name("examples.json")

# `parameters` by name, `request`, `status`, `media` and `answer`; without those that the call has not.
Example = Mapping[str, Any]


# By method and path; those that are answered later have ` later` after it.
# Read at import: handlers must not wait for a disk.
EXAMPLES: Mapping[str, Example] = json.loads(EXAMPLES_PATH.read_text("utf-8"))
