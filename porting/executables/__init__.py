"""This package keeps compiled programs on disk, and finds them by everything that they depend on.

The store and what explains it need no torch, so that `porting cache` answers at once; `key` and `obtain` do. The
public names are loaded on first use: they are for steps that are compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from porting.support.late_names import read_late_names

if TYPE_CHECKING:  # `as` makes a name public
    from porting.executables.explanations import explain_miss as explain_miss
    from porting.executables.exported_step import BatchRecord as BatchRecord
    from porting.executables.exported_step import ExportedStep as ExportedStep
    from porting.executables.folders import temporary_folder as temporary_folder
    from porting.executables.key import make_executable_key as make_executable_key
    from porting.executables.sources import record_sources as record_sources
    from porting.executables.store import ExecutableStore as ExecutableStore

__all__, __getattr__, __dir__ = read_late_names(globals())
