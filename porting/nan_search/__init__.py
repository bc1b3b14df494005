"""The search for the first value that is not finite: which operator makes it, where, in which pass, and of what.

What runs the operators tells this package of each of them; it knows no engine and no port. The public names are loaded
on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from porting.support.late_names import read_late_names

if TYPE_CHECKING:  # `as` makes a name public
    from porting.nan_search.host_search import HostTraining as HostTraining
    from porting.nan_search.host_search import find_not_finite_on_host as find_not_finite_on_host
    from porting.nan_search.not_finite import NotFinite as NotFinite
    from porting.nan_search.not_finite import NotFiniteError as NotFiniteError
    from porting.nan_search.search import NotFiniteSearch as NotFiniteSearch
    from porting.nan_search.update_records import UpdateRecords as UpdateRecords
    from porting.nan_search.value_ranges import ValueRange as ValueRange
    from porting.nan_search.value_ranges import is_not_finite as is_not_finite
    from porting.nan_search.value_ranges import measure_range as measure_range

__all__, __getattr__, __dir__ = read_late_names(globals())
