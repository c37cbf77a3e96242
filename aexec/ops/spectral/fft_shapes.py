"""Shape functions of `fft_ops.py`."""

from __future__ import annotations

from aexec.framework.shape_functions.shape_inference import InferenceContext, ShapeFn


def _real_fft(rank: int, *, forward: bool) -> ShapeFn:
    """The last `rank` dimensions have the sizes in input 1, fft_length."""

    def shape_fn(c: InferenceContext) -> None:
        shape = c.with_rank_at_least(c.input(0), rank)
        c.with_value(c.dim(c.with_rank(c.input(1), 1), 0), rank)
        value = c.input_tensor(1)
        lengths = [None] * rank if value is None else value.tolist()
        if forward and lengths[-1]:
            # Half of a real array's spectrum determines the rest.
            lengths[-1] = lengths[-1] // 2 + 1
        for i, length in enumerate(lengths):
            shape = c.replace_dim(shape, i - rank, length)
        c.set_output(0, shape)

    return shape_fn


rfft_1d, rfft_2d, rfft_3d = (_real_fft(rank, forward=True) for rank in (1, 2, 3))
irfft_1d, irfft_2d, irfft_3d = (_real_fft(rank, forward=False) for rank in (1, 2, 3))
