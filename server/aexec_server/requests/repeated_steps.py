"""`RepeatedSteps`: reads small RunStepRequests that differ from an earlier one in nothing but numbers.

A client that runs a step many times sends the same message each time, but for the elements of its tensors and the
request's id.  Protobuf's parser and the objects that it makes cost several times as much as a comparison with the bytes
of an earlier message.  So the form of such a message is kept, with the offsets of its tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from aexec import errors, proto
from aexec.hosting import DType, dtypes, tensor_from_content, wire_format
from aexec_server.requests import protobuf
from aexec_server.requests.run_request import RunRequest

__all__ = ["RepeatedSteps", "SmallStep"]

# Forms are kept of this many sessions, and of as many older ones until they are used or replaced; and so many of each.
_SESSIONS = 64
_FORMS = 8
_HANDLE = proto.RunStepRequest.SESSION_HANDLE_FIELD_NUMBER << 3 | wire_format.LENGTH
_FEED = proto.RunStepRequest.FEED_FIELD_NUMBER << 3 | wire_format.LENGTH
_ID = proto.RunStepRequest.REQUEST_ID_FIELD_NUMBER << 3 | wire_format.VARINT
_TENSOR = proto.NamedTensorProto.TENSOR_FIELD_NUMBER << 3 | wire_format.LENGTH
_CONTENT = proto.TensorProto.TENSOR_CONTENT_FIELD_NUMBER << 3 | wire_format.LENGTH
# Bytes of an id with its tag.
_MOST_OF_ID = 11


@dataclass(frozen=True, slots=True)
class SmallStep:
    """What a small RunStepRequest says.

    Attributes:
        session_handle: names the session.
        asked: the run.
        errors_in_body: the client wants an error of the run as a response.
    """

    session_handle: str
    asked: RunRequest
    errors_in_body: bool


@dataclass(frozen=True, slots=True)
class _Feed:
    """One tensor of a form: its name, type and shape, and the offsets of its content in the message."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Form:
    """A message without the contents of its tensors and without its id.

    Attributes:
        head: its bytes up to the first content, or up to the id if there is none.
        pieces: the other bytes that are the same in all messages of the form, with their offsets.
        end: offset of the id.
        feeds: its tensors.
        step: what it says, with the feeds of the message that it was learned from.
    """

    head: bytes
    pieces: tuple[tuple[int, int, bytes], ...]
    end: int
    feeds: tuple[_Feed, ...]
    step: SmallStep

    def fits(self, body: bytes) -> bool:
        """True if `body` is a message of this form."""
        if not body.startswith(self.head):
            return False
        for start, end, piece in self.pieces:
            if body[start:end] != piece:
                return False
        return _is_id(body[self.end :])

    def read(self, body: bytes) -> SmallStep:
        """Return what a message of this form says.  Raises InvalidArgumentError if its tensors are not valid."""
        feeds = {
            feed.name: tensor_from_content(body[feed.start : feed.end], feed.dtype, feed.shape) for feed in self.feeds
        }
        step = self.step
        return SmallStep(step.session_handle, step.asked.with_feeds(feeds), step.errors_in_body)


class _OfSession:
    """What came for one session: the lengths of some messages, and the forms that are kept, the latest used first."""

    __slots__ = ("forms", "lengths")

    def __init__(self) -> None:
        self.lengths: set[int] = set()
        self.forms: list[_Form] = []

    def form(self, body: bytes) -> _Form | None:
        """Return the form of a message, if it is known."""
        for position, form in enumerate(self.forms):
            if form.fits(body):
                if position:
                    self.forms.insert(0, self.forms.pop(position))
                return form
        return None

    def note(self, body: bytes, message: proto.RunStepRequest, step: SmallStep) -> None:
        """Keep the form of a message if one of its length came before: a single message is no reason for that."""
        size = len(body)
        if size not in self.lengths:
            if len(self.lengths) >= _FORMS:
                self.lengths.clear()
            self.lengths.add(size)
            return
        form = _form_of(body, message, step)
        if form is not None:
            self.forms.insert(0, form)
            del self.forms[_FORMS:]


class RepeatedSteps:
    """Reads RunStepRequests of at most a KiB whose tensors are given as bytes."""

    def __init__(self) -> None:
        self._known: dict[bytes, _OfSession] = {}
        self._known_before: dict[bytes, _OfSession] = {}

    def read(self, body: bytes) -> SmallStep | None:
        """Return what a message says; None for one that must be measured and parsed, or has an error."""
        of_session = self._of_session(_handle(body))
        form = of_session.form(body)
        try:
            if form is not None:
                return form.read(body)
            message = protobuf.parse_small_run(body)
            if message is None:
                return None
            asked = protobuf.read_run_step(message)
        except errors.OpError:  # whoever parses it reports this
            return None
        step = SmallStep(message.session_handle, asked, message.store_errors_in_response_body)
        of_session.note(body, message, step)
        return step

    def _of_session(self, handle: bytes) -> _OfSession:
        found = self._known.get(handle)
        if found is None:
            found = self._known_before.pop(handle, None) or _OfSession()
            if len(self._known) >= _SESSIONS:
                self._known_before, self._known = self._known, {}
            self._known[handle] = found
        return found


def _handle(body: bytes) -> bytes:
    """Return the session's handle; anything else for a message that does not begin with one of at most 127 bytes."""
    return body[2 : 2 + body[1]] if len(body) > 1 and body[0] == _HANDLE else b""


def _form_of(body: bytes, message: proto.RunStepRequest, step: SmallStep) -> _Form | None:
    """Return the form of a message that `parse_small_run` takes; None if an unknown field follows its id."""
    places = list(_contents(body))
    ends = [start for tag, start, _, _ in wire_format.fields(body, 0, len(body)) if tag == _ID]
    end = ends[0] if ends else len(body)
    if not _is_id(body[end:]):
        return None
    feeds = [
        _Feed(feed.name, dtypes.as_dtype(feed.tensor.dtype), step.asked.feeds[feed.name].shape, start, after)
        for feed, (start, after) in zip(message.feed, places, strict=True)
    ]
    if any(math.prod(feed.shape) * feed.dtype.size != feed.end - feed.start for feed in feeds):
        return None
    cuts = [0, *[offset for place in places for offset in place], end]
    (_, first), *others = zip(cuts[::2], cuts[1::2], strict=True)
    pieces = tuple([(start, after, body[start:after]) for start, after in others])
    return _Form(body[:first], pieces, end, tuple(feeds), step)


def _contents(body: bytes) -> Iterator[tuple[int, int]]:
    """Yield the offsets of the content of each feed's tensor, in order."""
    for tag, _, payload, after in wire_format.fields(body, 0, len(body)):
        if tag == _FEED:
            of_feed = {one[0]: one for one in wire_format.fields(body, payload, after)}
            _, _, start, end = of_feed[_TENSOR]
            of_tensor = {one[0]: one for one in wire_format.fields(body, start, end)}
            yield of_tensor[_CONTENT][2:]


def _is_id(rest: bytes) -> bool:
    """True if these bytes are a request's id, or nothing."""
    if not rest:
        return True
    if rest[0] != _ID or not 2 <= len(rest) <= _MOST_OF_ID or rest[-1] >= 128:
        return False
    return min(rest[1:-1], default=128) >= 128
