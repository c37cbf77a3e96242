"""`tf.audio`: sounds in WAV files.

Next to read: `aexec/kernels/audio/`.
"""

from __future__ import annotations

from aexec.compat.v1.namespace import namespace

__all__: list[str] = []

__getattr__, __dir__ = namespace(__name__, {name: f"ops:{name}" for name in ("decode_wav", "encode_wav")})
