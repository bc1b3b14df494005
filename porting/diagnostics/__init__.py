"""Report findings as data: one table of codes, places in the user's source, and how both are shown; needs no torch."""

from __future__ import annotations

from porting.diagnostics.codes import CODES, Code, Severity, find_code
from porting.diagnostics.delivery import (
    PortingWarning,
    log_finding,
    log_in_one_line,
    notify,
    print_finding,
    show_findings_alone,
    warnings_as_findings,
)
from porting.diagnostics.errors import (
    BatchError,
    CaptureError,
    CheckpointError,
    DeviceError,
    ExecutableError,
    OptionError,
    PortingError,
    UnsupportedOptimizerError,
    require_extra,
)
from porting.diagnostics.findings import FORMATS, Finding, render, render_all
from porting.diagnostics.places import (
    Place,
    caller_place,
    find_assignment,
    find_raising_frame,
    frame_place,
    is_user_file,
)
from porting.diagnostics.refusals import amended_refusals, are_refusals_collected, collected_refusals, refuse
from porting.diagnostics.terminal import find_width, has_colours, paint, show
from porting.diagnostics.wording import (
    advise_on_autograd,
    align_columns,
    join_names,
    say_kind,
    say_number,
    suggest_file,
    suggest_name,
    take_first_line,
)

__all__ = [
    "CODES",
    "FORMATS",
    "BatchError",
    "CaptureError",
    "CheckpointError",
    "Code",
    "DeviceError",
    "ExecutableError",
    "Finding",
    "OptionError",
    "Place",
    "PortingError",
    "PortingWarning",
    "Severity",
    "UnsupportedOptimizerError",
    "advise_on_autograd",
    "align_columns",
    "amended_refusals",
    "are_refusals_collected",
    "caller_place",
    "collected_refusals",
    "find_assignment",
    "find_code",
    "find_raising_frame",
    "find_width",
    "frame_place",
    "has_colours",
    "is_user_file",
    "join_names",
    "log_finding",
    "log_in_one_line",
    "notify",
    "paint",
    "print_finding",
    "refuse",
    "render",
    "render_all",
    "require_extra",
    "say_kind",
    "say_number",
    "show",
    "show_findings_alone",
    "suggest_file",
    "suggest_name",
    "take_first_line",
    "warnings_as_findings",
]
