"""WAV files and spectrograms."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.ops.audio import audio_shapes as shapes

register_op(
    "AudioSpectrogram(input: float) -> spectrogram: float",
    "window_size: int", "stride: int", "magnitude_squared: bool = false", shape_fn=shapes.spectrogram,
)
register_op(
    "DecodeWav(contents: string) -> audio: float, sample_rate: int32",
    "desired_channels: int = -1", "desired_samples: int = -1", shape_fn=shapes.decode_wav,
)
register_op("EncodeWav(audio: float, sample_rate: int32) -> contents: string", shape_fn=shapes.encode_wav)
register_op(
    "Mfcc(spectrogram: float, sample_rate: int32) -> output: float",
    "upper_frequency_limit: float = 4000.0", "lower_frequency_limit: float = 20.0",
    "filterbank_channel_count: int = 40", "dct_coefficient_count: int = 13", shape_fn=shapes.mfcc,
)
