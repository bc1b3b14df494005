"""This module compares the results of two runs, case by case.

It compares speed-ups over eager and not times, because the load of a machine differs from hour to hour.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Dict, List, Optional, Sequence

import numpy as np

from porting.bench.results import list_machine_differences
from porting.bench.tables import Plain, Row, Table, name_case, write_interval
from porting.support.interleaved import Interval

__all__ = ["Change", "compare_results", "make_comparison_table"]

_NOISE = 0.02
_NUM_RESAMPLES = 2000


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


def make_comparison_table(earlier: Plain, later: Plain) -> Table:
    """Make the table of all changes, with what differs between the machines."""
    rows: List[Row] = [("workload", "speed-up now / then (95 %)", "ported time", "verdict")]
    for change in compare_results(earlier, later):
        ratio = "-" if change.speed_up is None else write_interval(asdict(change.speed_up))
        ported = "-" if change.ported_time is None else f"x{change.ported_time:.2f}"
        rows.append((change.title, ratio, ported, change.verdict))
    differences = list_machine_differences(earlier["machine"], later["machine"])
    notes = [f"another machine: {'; '.join(differences)}"] if differences else []
    interrupted = "" if earlier["complete"] else " (which was interrupted)"
    return Table(f"compared with {earlier['created']}{interrupted}", rows, notes)


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
