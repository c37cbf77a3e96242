"""`UnsentAnswers`: bounds the bytes of answers that clients have asked for and do not read.

grpcio keeps an answer until its client has read it, and cannot drop one while its connection lives.  So the bytes of
such answers are limited, in total and for each client; a client that does not read cannot block the others' answers.
"""

from __future__ import annotations

from aexec_server.clients.client_shares import ClientShares
from aexec_server.core.server_state import Server
from aexec_server.rpc.method import Call

__all__ = ["UnsentAnswers"]

# Fewest bytes of an answer that counts; the number of smaller ones is bounded by the number of calls.
_LEAST = 2**14
# Limit for all answers: this part of the memory of sessions, or this many of the largest answers if memory has no
# limit.
_PART = 4
_ANSWERS = 4


class UnsentAnswers:
    """The bytes of answers on their way.

    Attributes:
        shares: the clients' shares.
    """

    def __init__(self, server: Server) -> None:
        largest, limit = server.config.max_answer_bytes, server.sessions.memory.limit
        most = _ANSWERS * largest if limit is None else max(largest, limit // _PART)
        self.shares = ClientShares("rpc_answer_bytes", "bytes of answers that were not taken", most)
        server.metrics.add_shares(self.shares)

    def count(self, call: Call, size: int) -> None:
        """Count an answer until it was sent or given up.

        Raises:
            ResourceExhaustedError: too many bytes are counted, in total or for this client.
        """
        if size > _LEAST:
            self.shares.take(call.caller, size)
            client = call.caller.client
            call.when_ended(lambda: self.shares.give_back(client, size))
