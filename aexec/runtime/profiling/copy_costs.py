"""What copies between memories took, as a line: so much for any copy, and so much a byte.

Next to read: `cost_model.py`, which asks.
"""

from __future__ import annotations

__all__ = ["CopyCosts"]


class CopyCosts:
    """Measured copies, of which the sums are kept that a line of least squares takes."""

    def __init__(self) -> None:
        self.count = 0
        self._bytes = self._micros = self._bytes_squared = self._products = 0.0

    def add(self, num_bytes: float, micros: float) -> None:
        """One copy, of so many bytes, took so many microseconds."""
        self.count += 1
        self._bytes += num_bytes
        self._micros += micros
        self._bytes_squared += num_bytes * num_bytes
        self._products += num_bytes * micros

    def merge(self, other: CopyCosts) -> None:
        """Add what was measured elsewhere."""
        self.count += other.count
        self._bytes += other._bytes
        self._micros += other._micros
        self._bytes_squared += other._bytes_squared
        self._products += other._products

    def micros_per_byte(self, otherwise: float) -> float:
        """The line's slope, at least 0; `otherwise` if the copies were all of one size."""
        spread = self.count * self._bytes_squared - self._bytes**2
        # Of sizes that are the same this is what rounding leaves.
        if spread <= 1e-9 * self.count * self._bytes_squared:
            return otherwise
        return max(0.0, (self.count * self._products - self._bytes * self._micros) / spread)

    def latency(self, micros_per_byte: float, otherwise: float) -> float:
        """What a copy takes beside its bytes, in microseconds, at least 0; `otherwise` if none was measured."""
        if not self.count:
            return otherwise
        return max(0.0, (self._micros - micros_per_byte * self._bytes) / self.count)
