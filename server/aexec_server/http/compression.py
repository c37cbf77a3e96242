"""Compressed answers, for clients that ask for them by `Accept-Encoding`."""

from __future__ import annotations

import zlib

from aiohttp import web
from aiohttp.hdrs import ACCEPT_ENCODING, CONTENT_ENCODING, VARY

from aexec.hosting import OnCancel, run_in_thread
from aexec_server.http.answer_parts import in_one_piece

__all__ = ["INLINE_BYTES", "LEAST_BYTES", "coding_of", "compress", "compressed"]

# `deflate` means the zlib format, in spite of its name (RFC 9110, section 8.4.1.2).
_WBITS = {"gzip": 31, "deflate": 15}
# Smaller answers are not compressed.
LEAST_BYTES = 1024
# Larger answers are compressed in a thread.
INLINE_BYTES = 16 * 1024
_LEVEL = 1


async def compress(request: web.Request, response: web.Response) -> web.Response:
    """Compress an answer if its client accepts that, and it is worth it.

    Binary tensors are compressed only if the client names one coding, as inference clients do.  Other headers only list
    what a library can read.
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
    """The coding of an answer to a client that accepts these; None for no coding."""
    codings = [part.strip().lower() for part in accepted.split(",")]
    if binary and len(codings) > 1:
        return None
    return next((coding for coding in codings if coding in _WBITS), None)


def compressed(body: bytes, coding: str) -> bytes:
    """A body in a coding that `coding_of` has returned."""
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WBITS[coding])
    return compressor.compress(body) + compressor.flush()
