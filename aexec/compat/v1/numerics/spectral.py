"""`tf.spectral`: the older namespace of `tf.signal`.

Next to read: `signal.py`.
"""

from __future__ import annotations

from aexec.compat.v1.namespace import namespace

__all__: list[str] = []

__getattr__, __dir__ = namespace(
    __name__,
    {
        name: f"functions.signal:{name}"
        for name in "dct fft fft2d fft3d idct ifft ifft2d ifft3d irfft irfft2d irfft3d rfft rfft2d rfft3d".split()
    },
)
