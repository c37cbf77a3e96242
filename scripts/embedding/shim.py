"""Implements the functions of the shared library: converts memory of C to bytes and back.  `build.py` compiles
it in.
"""

from aexec_embedding import ffi, lib

from aexec.embedding import Embedding
from aexec.errors import Code

_embedding = Embedding()
# Status for an exception in this file, which would be a bug here; cffi prints it.
_FAULT = int(Code.INTERNAL)


def _text(pointer):
    return ffi.string(pointer).decode("utf-8", "surrogateescape")


def _texts(pointers, count):
    return [_text(pointers[i]) for i in range(count)]


def _data(view):
    return ffi.unpack(ffi.cast("char *", view.data), view.size) if view.size else b""


def _feeds(feeds, count):
    return [(_text(feeds[i].name), _data(feeds[i].tensor)) for i in range(count)]


def _allocated(data, extra=0):
    """Return a copy of the bytes that C owns, followed by `extra` zeros."""
    memory = lib.malloc(max(1, len(data) + extra))
    if memory == ffi.NULL:
        raise MemoryError
    whole = ffi.buffer(memory, len(data) + extra)
    whole[:] = data + bytes(extra)
    return memory


def _give_text(place, text):
    if place != ffi.NULL:
        place[0] = ffi.cast("char *", _allocated(text.encode("utf-8", "surrogateescape").replace(b"\0", b" "), 1))


def _give(place, data):
    if place != ffi.NULL:
        place.data, place.size = _allocated(data), len(data)


def _give_all(places, items):
    for i, data in enumerate(items):
        _give(places + i, data)


def _code(status, message):
    if message != ffi.NULL:
        message[0] = ffi.NULL
    if status.code:
        _give_text(message, status.message)
    return status.code


def _exported(function):
    return ffi.def_extern(error=_FAULT)(function)


@_exported
def aexec_begin_session(graph_def, config, session, message):
    status, session[0] = _embedding.new_session(_data(graph_def), _data(config))
    return _code(status, message)


@_exported
def aexec_extend(session, graph_def, message):
    return _code(_embedding.extend(session, _data(graph_def)), message)


@_exported
def aexec_list_devices(session, devices, count, message):
    status, found = _embedding.list_devices(session)
    count[0], devices[0] = len(found), ffi.NULL
    if found:
        devices[0] = ffi.cast("aexec_buffer *", _allocated(b"", len(found) * ffi.sizeof("aexec_buffer")))
        _give_all(devices[0], found)
    return _code(status, message)


@_exported
def aexec_run(
    session,
    feeds,
    num_feeds,
    fetches,
    num_fetches,
    targets,
    num_targets,
    options,
    run_id,
    tensors,
    metadata,
    message,
):
    status, values, data = _embedding.run(
        session,
        _feeds(feeds, num_feeds),
        _texts(fetches, num_fetches),
        _texts(targets, num_targets),
        _data(options),
        run_id,
    )
    if not status.code:
        _give_all(tensors, values)
        _give(metadata, data)
    return _code(status, message)


@_exported
def aexec_cancel(session, run_id, message):
    return _code(_embedding.cancel(session, run_id), message)


@_exported
def aexec_partial_run_setup(
    session, feeds, num_feeds, fetches, num_fetches, targets, num_targets, options, handle, message
):
    status, text = _embedding.partial_run_setup(
        session,
        _texts(feeds, num_feeds),
        _texts(fetches, num_fetches),
        _texts(targets, num_targets),
        _data(options),
    )
    if not status.code:
        _give_text(handle, text)
    return _code(status, message)


@_exported
def aexec_partial_run(session, handle, feeds, num_feeds, fetches, num_fetches, tensors, message):
    status, values = _embedding.partial_run(
        session, _text(handle), _feeds(feeds, num_feeds), _texts(fetches, num_fetches)
    )
    _give_all(tensors, values)
    return _code(status, message)


@_exported
def aexec_cancel_partial_run(session, handle, message):
    return _code(_embedding.cancel_partial_run(session, _text(handle)), message)


@_exported
def aexec_make_callable(session, callable_options, callable, message):
    status, callable[0] = _embedding.make_callable(session, _data(callable_options))
    return _code(status, message)


@_exported
def aexec_run_callable(session, callable, feeds, num_feeds, run_id, tensors, num_tensors, metadata, message):
    given = [_data(feeds[i]) for i in range(num_feeds)]
    status, values, data = _embedding.run_callable(session, callable, given, run_id)
    if not status.code and len(values) != num_tensors:
        if message != ffi.NULL:
            message[0] = ffi.NULL
        _give_text(message, f"The callable fetches {len(values)} tensors, and there is room for {num_tensors}")
        return int(Code.INVALID_ARGUMENT)
    if not status.code:
        _give_all(tensors, values)
        _give(metadata, data)
    return _code(status, message)


@_exported
def aexec_release_callable(session, callable, message):
    return _code(_embedding.release_callable(session, callable), message)


@_exported
def aexec_close(session, message):
    return _code(_embedding.close(session), message)
