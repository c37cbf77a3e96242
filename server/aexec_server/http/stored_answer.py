"""`StoredAnswer`: an answer that was given, or will be, to be given again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from aexec_server.http.answer_parts import in_one_piece

__all__ = ["StoredAnswer"]

_KEPT = ("Content-Type", "Inference-Header-Content-Length", "Aexec-Run-Id", "Location", "Preference-Applied")
# What one takes besides its body, about.
_OVERHEAD = 1000


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer, or the future of one, that can be given again.

    Attributes:
        status, body: as they were.
        headers: those that say something of the body, or where something is.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    @classmethod
    def of(cls, response: web.Response) -> StoredAnswer:
        headers = {name: response.headers[name] for name in _KEPT if name in response.headers}
        return cls(response.status, headers, in_one_piece(response.body) or b"")

    @property
    def size(self) -> int:
        return len(self.body) + _OVERHEAD

    @property
    def media_type(self) -> str:
        return self.headers.get("Content-Type", "").partition(";")[0]

    def response(self, headers: Mapping[str, str] | None = None) -> web.Response:
        """It, with further headers."""
        return web.Response(body=self.body, status=self.status, headers={**self.headers, **(headers or {})})
