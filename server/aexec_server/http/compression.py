"""Compressed answers, for clients that ask for them by `Accept-Encoding`."""

from __future__ import annotations

import zlib

from aiohttp import web
from aiohttp.hdrs import ACCEPT_ENCODING, CONTENT_ENCODING, VARY

from aexec.hosting import OnCancel, run_in_thread
from aexec_server.http.answer_parts import in_one_piece

__all__ = ["INLINE_BYTES", "LEAST_BYTES", "coding_of", "compress", "compressed"]

# `deflate` is the zlib format, whatever its name says (RFC 9110, section 8.4.1.2).
_WBITS = {"gzip": 31, "deflate": 15}
# What has fewer is sent as it is.
LEAST_BYTES = 1024
# What has more is compressed in a thread.
INLINE_BYTES = 16 * 1024
_LEVEL = 1


async def compress(request: web.Request, response: web.Response) -> web.Response:
    """Compress an answer if its client can read that, and it is worth it.

    Tensors in binary form are compressed for those only that name one coding, as inference clients do: to others the
    header is what their library can read, and not a wish.
    """
    accepted = request.headers.get(ACCEPT_ENCODING)
    if accepted is None:
        return response
    chosen = coding_of(accepted, binary=response.content_type == "application/octet-stream")
    body = None if chosen is None else in_one_piece(response.body)
    if chosen is None or body is None or len(body) < LEAST_BYTES:
        return response
    if len(body) <= INLINE_BYTES:
        response.body = compressed(body, chosen)
    else:
        response.body = await run_in_thread(compressed, body, chosen, on_cancel=OnCancel.ABANDON)
    response.headers[CONTENT_ENCODING] = chosen
    response.headers[VARY] = ACCEPT_ENCODING
    return response


def coding_of(accepted: str, *, binary: bool) -> str | None:
    """In which coding an answer goes to a client that accepts these; None for as it is."""
    codings = [part.strip().lower() for part in accepted.split(",")]
    if binary and len(codings) > 1:
        return None
    return next((coding for coding in codings if coding in _WBITS), None)


def compressed(body: bytes, coding: str) -> bytes:
    """A body in one of the codings that `coding_of` gives."""
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WBITS[coding])
    return compressor.compress(body) + compressor.flush()
