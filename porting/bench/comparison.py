"""This module compares the results of two runs, case by case.

It compares speed-ups over eager and not times, because the load of a machine differs from hour to hour.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

import numpy as np

from porting.bench.pages import name_case
from porting.bench.results import list_machine_differences
from porting.diagnostics.wording import align_columns
from porting.support.interleaved import Interval

__all__ = ["Change", "compare_results", "lay_out_comparison"]

_NOISE = 0.02
_NUM_RESAMPLES = 2000

Plain = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """How a case changed: `speed_up` is the later speed-up over eager divided by the earlier one's.

    `verdict` is "faster", "slower" or "same within noise"; "new", "gone" or "not comparable" where a run lacks the
    case or its result. `ported_time` is the later median step time over the earlier one's, which the machine's load
    has its part in.
    """

    title: str
    verdict: str
    speed_up: Optional[Interval] = None
    ported_time: Optional[float] = None


def compare_results(earlier: Plain, later: Plain) -> List[Change]:
    """Compare the cases of two result files that have the same name and choices.

    A change counts if the 95 % bootstrap interval of the quotient of the medians does not contain 1, and it is more
    than 2 %.
    """
    before, after = _index_cases(earlier["cells"]), _index_cases(later["cells"])
    changes = [_compare_cases(before.get(key), case) for key, case in after.items()]
    return changes + [Change(name_case(case), "gone") for key, case in before.items() if key not in after]


def lay_out_comparison(earlier: Plain, later: Plain) -> Iterator[str]:
    """Lay out the comparison as a table, with what differs between the machines."""
    changes = compare_results(earlier, later)
    yield f"compared with {earlier['created']}" + ("" if earlier["complete"] else " (which was interrupted)")
    differences = list_machine_differences(earlier["machine"], later["machine"])
    if differences:
        yield f"  another machine: {'; '.join(differences)}"
    rows = [("  workload", "speed-up now / then (95 %)", "ported time", "verdict")]
    for change in changes:
        interval, ported = change.speed_up, change.ported_time
        ratio = "-" if interval is None else f"{interval.median:.2f} ({interval.low:.2f}-{interval.high:.2f})"
        shown = "-" if ported is None else f"x{ported:.2f}"
        rows.append((f"  {change.title}", ratio, shown, change.verdict))
    yield from align_columns(rows, right={1, 2})


def _index_cases(cases: Sequence[Plain]) -> Dict[str, Plain]:
    """Find cases by name and choices."""
    return {json.dumps([case["name"], case["choices"], case["repeat"]], sort_keys=True): case for case in cases}


def _compare_cases(earlier: Optional[Plain], later: Plain) -> Change:
    title = name_case(later)
    if earlier is None:
        return Change(title, "new")
    if earlier["result"] is None or later["result"] is None:
        return Change(title, "not comparable")
    before, after = earlier["result"], later["result"]
    times = after["ported"]["step_seconds"]["median"] / before["ported"]["step_seconds"]["median"]
    # the medians of two independent sets of rounds, with bootstrap bounds
    random, both = np.random.default_rng(0), (after["speed_up"]["rounds"], before["speed_up"]["rounds"])
    above, below = (np.median(random.choice(rounds, size=(_NUM_RESAMPLES, len(rounds))), axis=1) for rounds in both)
    low, high = np.quantile(above / below, [0.025, 0.975]).tolist()
    quotient = Interval(float(np.median(both[0]) / np.median(both[1])), low, high)
    is_faster = quotient.low > 1 and quotient.median > 1 + _NOISE
    is_slower = quotient.high < 1 and quotient.median < 1 - _NOISE
    verdict = "faster" if is_faster else "slower" if is_slower else "same within noise"
    return Change(title, verdict, quotient, times)
