"""`tf.contrib.seq2seq`: networks that write sequences: attention, decoders, beam search and their loss.

Next to read: `seq2seq_decoding.py`.
"""

from __future__ import annotations

from aexec.compat.v1.namespace import namespace

__all__: list[str] = []

_PLACES = {
    "seq2seq_attention": """AttentionMechanism AttentionWrapper AttentionWrapperState BahdanauAttention LuongAttention
    hardmax""",
    "seq2seq_beam_search": """BeamSearchDecoder BeamSearchDecoderOutput BeamSearchDecoderState
    FinalBeamSearchDecoderOutput gather_tree tile_batch""",
    "seq2seq_decoding": "BasicDecoder BasicDecoderOutput Decoder dynamic_decode",
    "seq2seq_helpers": """CustomHelper GreedyEmbeddingHelper Helper InferenceHelper SampleEmbeddingHelper
    ScheduledEmbeddingTrainingHelper TrainingHelper""",
    "seq2seq_loss": "sequence_loss",
}

__getattr__, __dir__ = namespace(
    __name__,
    {name: f"contrib.{place}:{name}" for place, names in _PLACES.items() for name in names.split()},
    {
        **dict.fromkeys(
            "BahdanauMonotonicAttention LuongMonotonicAttention monotonic_attention".split(),
            "use BahdanauAttention with a probability_fn",
        ),
        "ScheduledOutputTrainingHelper": "use ScheduledEmbeddingTrainingHelper, or a CustomHelper",
    },
)
