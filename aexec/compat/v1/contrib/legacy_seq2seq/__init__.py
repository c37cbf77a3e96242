"""`tf.contrib.legacy_seq2seq`: encoders and decoders over sequences that are lists with a tensor per time step.

Next to read: `plain.py`; and `../seq2seq/__init__.py`, the successor of this package.
"""

from __future__ import annotations

from aexec.compat.v1.namespace import namespace

__all__: list[str] = []

_PLACES = {
    "attention": "attention_decoder embedding_attention_decoder embedding_attention_seq2seq",
    "embeddings": "embedding_rnn_decoder embedding_rnn_seq2seq embedding_tied_rnn_seq2seq one2many_rnn_seq2seq",
    "losses": "model_with_buckets sequence_loss sequence_loss_by_example",
    "plain": "basic_rnn_seq2seq rnn_decoder tied_rnn_seq2seq",
}

__getattr__, __dir__ = namespace(
    __name__,
    {name: f"contrib.legacy_seq2seq.{place}:{name}" for place, names in _PLACES.items() for name in names.split()},
)
