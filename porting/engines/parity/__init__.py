"""Compare an executable with replay, before anybody uses it: what an engine computes has to be what replay computes.

The public names are loaded on first use: a step that is replayed compares nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from porting.support.late_names import read_late_names

if TYPE_CHECKING:  # `as` makes a name public
    from porting.engines.parity.comparison import Parity as Parity
    from porting.engines.parity.comparison import compare_with_replay as compare_with_replay
    from porting.engines.parity.comparison import count_compared_calls as count_compared_calls
    from porting.engines.parity.replayed_calls import ReplayedCalls as ReplayedCalls

__all__, __getattr__, __dir__ = read_late_names(globals())
