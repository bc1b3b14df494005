"""The search for the first value that is not finite: which operator makes it, where, in which pass, and of what.

What runs the operators tells this package of each of them; it knows no engine and no port.
"""

from __future__ import annotations

from porting.nan_search.gradient_records import GradientRecords
from porting.nan_search.host_search import HostTraining, find_not_finite_on_host
from porting.nan_search.not_finite import NotFinite, NotFiniteError, WatchedOperator
from porting.nan_search.operator_records import OperatorRecords
from porting.nan_search.update_records import UpdateRecords
from porting.nan_search.value_ranges import ValueRange, is_not_finite, measure_range

__all__ = [
    "GradientRecords",
    "HostTraining",
    "NotFinite",
    "NotFiniteError",
    "OperatorRecords",
    "UpdateRecords",
    "ValueRange",
    "WatchedOperator",
    "find_not_finite_on_host",
    "is_not_finite",
    "measure_range",
]
