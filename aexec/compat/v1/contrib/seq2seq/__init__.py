"""`tf.contrib.seq2seq`: networks that generate sequences: attention, decoders, beam search and a loss.

Next to read: `decoding.py`.
"""

from __future__ import annotations

from aexec.compat.v1.namespace import namespace

__all__: list[str] = []

_PLACES = {
    "attention": """AttentionMechanism AttentionWrapper AttentionWrapperState BahdanauAttention LuongAttention
    hardmax""",
    "beam_search": """BeamSearchDecoder BeamSearchDecoderOutput BeamSearchDecoderState
    FinalBeamSearchDecoderOutput gather_tree tile_batch""",
    "decoding": "BasicDecoder BasicDecoderOutput Decoder dynamic_decode",
    "helpers": """CustomHelper GreedyEmbeddingHelper Helper InferenceHelper SampleEmbeddingHelper
    ScheduledEmbeddingTrainingHelper TrainingHelper""",
    "loss": "sequence_loss",
}

__getattr__, __dir__ = namespace(
    __name__,
    {name: f"contrib.seq2seq.{place}:{name}" for place, names in _PLACES.items() for name in names.split()},
    {
        **dict.fromkeys(
            "BahdanauMonotonicAttention LuongMonotonicAttention monotonic_attention".split(),
            "use BahdanauAttention with a probability_fn",
        ),
        "ScheduledOutputTrainingHelper": "use ScheduledEmbeddingTrainingHelper, or a CustomHelper",
    },
)
