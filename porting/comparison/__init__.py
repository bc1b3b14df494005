"""Numbers against numbers: how far they are apart, what is allowed, and how much of it is rounding.

Here nothing is judged: what is compared, and with which tolerance, says the caller. This package loads without torch.
"""

from __future__ import annotations

from .numbers import Difference, Tolerance, is_rounding, largest_difference

__all__ = ["Difference", "Tolerance", "is_rounding", "largest_difference"]
