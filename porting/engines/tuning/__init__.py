"""Find the fastest way to run a step, by measuring those that agree with replay: the `Chooser` of this package.

The public names are loaded on first use: a step that begins with replay measures nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from porting.support.late_names import read_late_names

if TYPE_CHECKING:  # `as` makes a name public
    from porting.engines.tuning.tuner import tune as tune

__all__, __getattr__, __dir__ = read_late_names(globals())
