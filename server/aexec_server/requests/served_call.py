"""`ServedCall`: one combination of feeds, fetches and targets of a hosted session, with the texts of its answers.

The session resolves the names once (`aexec.SessionCallable`); this class adds what HTTP answers need.
"""

from __future__ import annotations

from collections.abc import Sequence

import aexec
from aexec import hosting
from aexec.hosting import BatchedCallable, DType
from aexec_server.http.bodies import encode_json
from aexec_server.requests.tensors import has_people_form

__all__ = ["AnswerForm", "ServedCall"]


class AnswerForm:
    """The parts of an answer that do not depend on the values.

    Attributes:
        names: names of the fetches in the answer.
        dtypes: their types.
        name_texts: the names as JSON.
        dtypes_text: name → name of the type, as JSON.
        people_can_read: True if all fetches can be written as nested JSON lists.
    """

    __slots__ = ("dtypes", "dtypes_text", "name_texts", "names", "people_can_read")

    def __init__(self, names: Sequence[str], dtypes: Sequence[DType]) -> None:
        self.names = names
        self.dtypes = dtypes
        self.name_texts = [encode_json(name) for name in names]
        self.dtypes_text = encode_json({n: d.name for n, d in zip(names, dtypes, strict=True)})
        self.people_can_read = all(has_people_form(dtype) for dtype in dtypes)


class ServedCall(AnswerForm):
    """A callable of a hosted session, with the parts of answers that are the same for all its runs.

    Args:
        feeds: names of tensors, each once.
        fetches: as asked for, repetitions included; `y` means `y:0`.
        targets: names of operations.
        inputs: names of the feeds in requests, in the same order; default: those in `feeds`.
        names: names of the fetches in the answer; default: those in `fetches`.

    Attributes:
        call: the session's callable; takes the values of `inputs` in this order, and returns a list with a value for
            each fetch.
        inputs, input_dtypes: names of the feeds in requests, and their types, in the order in which `call` takes
            values.
        tensors: names of the fetched tensors in the graph.
        batched: the same call joined to batches with others; None if it is not batched.
        changes: whether its runs may change the session's state; None until somebody asks (`HostedSession.changes`).

    Raises:
        NotFoundError, InvalidArgumentError: as `Session.make_callable`.
    """

    __slots__ = ("batched", "call", "changes", "input_dtypes", "inputs", "tensors")

    def __init__(
        self,
        session: aexec.Session,
        feeds: tuple[str, ...],
        fetches: tuple[str, ...],
        targets: tuple[str, ...],
        inputs: tuple[str, ...] | None = None,
        names: tuple[str, ...] | None = None,
    ) -> None:
        self.tensors = tensors = tuple([hosting.canonical_name(name) for name in fetches])
        self.call = session.make_callable(list(tensors), feeds, targets)
        self.inputs = feeds if inputs is None else inputs
        self.input_dtypes = self.call.feed_dtypes
        self.batched: BatchedCallable | None = None
        self.changes: bool | None = None
        types = dict(zip(self.call.fetches, self.call.fetch_dtypes, strict=True))
        super().__init__(fetches if names is None else names, [types[name] for name in tensors])

    @property
    def feeds(self) -> tuple[str, ...]:
        return self.call.feeds

    @property
    def fetches(self) -> tuple[str, ...]:
        return tuple(self.names)

    @property
    def targets(self) -> tuple[str, ...]:
        return self.call.targets

    @property
    def num_plan_nodes(self) -> int:
        return self.call.num_plan_nodes
