"""`StoredAnswer`: an answer that can be given again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from aexec_server.http.answer_parts import in_one_piece

__all__ = ["StoredAnswer"]

_KEPT = ("Content-Type", "Inference-Header-Content-Length", "Aexec-Run-Id", "Location", "Preference-Applied")
# The bytes of a stored answer besides its body, approximately.
_OVERHEAD = 1000


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer, or the future of one, that can be given again.

    Attributes:
        status, body: those of the answer.
        headers: its headers about the body, and about locations.
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
        """A response with this answer and further headers."""
        return web.Response(body=self.body, status=self.status, headers={**self.headers, **(headers or {})})
