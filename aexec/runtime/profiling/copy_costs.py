"""Measured times of copies between memories, fitted as a latency and a time per byte.

Next to read: `cost_model.py`, which uses it.
"""

from __future__ import annotations

__all__ = ["CopyCosts"]


class CopyCosts:
    """The sums over measured copies that a least-squares line needs."""

    def __init__(self) -> None:
        self.count = 0
        self._bytes = self._micros = self._bytes_squared = self._products = 0.0

    def add(self, num_bytes: float, micros: float) -> None:
        """Add a copy of `num_bytes` that took `micros` microseconds."""
        self.count += 1
        self._bytes += num_bytes
        self._micros += micros
        self._bytes_squared += num_bytes * num_bytes
        self._products += num_bytes * micros

    def merge(self, other: CopyCosts) -> None:
        """Add the copies measured by another one."""
        self.count += other.count
        self._bytes += other._bytes
        self._micros += other._micros
        self._bytes_squared += other._bytes_squared
        self._products += other._products

    def micros_per_byte(self, otherwise: float) -> float:
        """The line's slope, at least 0; `otherwise` if all copies had one size."""
        spread = self.count * self._bytes_squared - self._bytes**2
        # For equal sizes the spread is only rounding error.
        if spread <= 1e-9 * self.count * self._bytes_squared:
            return otherwise
        return max(0.0, (self.count * self._products - self._bytes * self._micros) / spread)

    def latency(self, micros_per_byte: float, otherwise: float) -> float:
        """The microseconds of a copy besides its bytes, at least 0; `otherwise` without measured copies."""
        if not self.count:
            return otherwise
        return max(0.0, (self._micros - micros_per_byte * self._bytes) / self.count)
