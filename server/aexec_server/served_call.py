"""`ServedCall`: one request signature of a hosted session, with the texts that its answers are made of.

The session resolves the signature once (`aexec.Callable`); this adds what HTTP says about it.
"""

from __future__ import annotations

import aexec
from aexec import hosting
from aexec.hosting import DType
from aexec_server.bodies import encode_json
from aexec_server.tensors import has_people_form, people_dtype

__all__ = ["ServedCall"]


class ServedCall:
    """See the module's head.

    Args:
        feeds: names of tensors.
        fetches: as asked for, repetitions included; `y` means `y:0`.
        targets: names of operations.

    Attributes:
        call: what the session runs; it gives a list with a value for each fetch.
        names: of the fetches, as asked for.
        dtypes: of each.
        name_texts: names as JSON.
        dtypes_text: name → type in people's words, as JSON.
        people_can_read: all have a JSON form.

    Raises:
        NotFoundError, InvalidArgumentError: as `Session.make_callable`.
    """

    __slots__ = ("call", "dtypes", "dtypes_text", "name_texts", "names", "people_can_read")

    def __init__(
        self, session: aexec.Session, feeds: tuple[str, ...], fetches: tuple[str, ...], targets: tuple[str, ...]
    ) -> None:
        tensors = [hosting.canonical_name(name) for name in fetches]
        self.call = session.make_callable(tensors, feeds, targets)
        self.names = fetches
        types = dict(zip(self.call.fetches, self.call.fetch_dtypes, strict=True))
        self.dtypes: list[DType] = [types[name] for name in tensors]
        self.name_texts = [encode_json(name) for name in fetches]
        self.dtypes_text = encode_json({n: people_dtype(d) for n, d in zip(fetches, self.dtypes, strict=True)})
        self.people_can_read = all(has_people_form(dtype) for dtype in self.dtypes)

    @property
    def feeds(self) -> tuple[str, ...]:
        return self.call.feeds

    @property
    def fetches(self) -> tuple[str, ...]:
        return self.names

    @property
    def targets(self) -> tuple[str, ...]:
        return self.call.targets

    @property
    def num_plan_nodes(self) -> int:
        return self.call.num_plan_nodes
