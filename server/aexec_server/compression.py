"""Compressed answers, for clients that ask for them by `Accept-Encoding`."""

from __future__ import annotations

import zlib

from aiohttp import web
from aiohttp.hdrs import ACCEPT_ENCODING, CONTENT_ENCODING, VARY

from aexec.hosting import OnCancel, run_in_thread

__all__ = ["compress"]

# `deflate` is the zlib format, whatever its name says (RFC 9110, section 8.4.1.2).
_WBITS = {"gzip": 31, "deflate": 15}
_LEAST_BYTES = 1024
_INLINE_BYTES = 16 * 1024
_LEVEL = 1


async def compress(request: web.Request, response: web.Response) -> web.Response:
    """Compress an answer if its client can read that, and it is worth it.

    Tensors in binary form are compressed for those only that name one coding, as inference clients do: to others the
    header is what their library can read, and not a wish.
    """
    accepted = request.headers.get(ACCEPT_ENCODING)
    if accepted is None:
        return response
    body = response.body
    codings = [part.strip().lower() for part in accepted.split(",")]
    chosen = next((coding for coding in codings if coding in _WBITS), None)
    if chosen is None or not isinstance(body, bytes) or len(body) < _LEAST_BYTES:
        return response
    if len(codings) > 1 and response.content_type == "application/octet-stream":
        return response
    if len(body) <= _INLINE_BYTES:
        response.body = _deflated(body, _WBITS[chosen])
    else:
        response.body = await run_in_thread(_deflated, body, _WBITS[chosen], on_cancel=OnCancel.ABANDON)
    response.headers[CONTENT_ENCODING] = chosen
    response.headers[VARY] = ACCEPT_ENCODING
    return response


def _deflated(body: bytes, wbits: int) -> bytes:
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, wbits)
    return compressor.compress(body) + compressor.flush()
