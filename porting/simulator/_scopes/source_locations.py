"""Find the user's line that records an operator, by the rule of `Options.sourceLocationExcludes`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Optional, Sequence

__all__ = ["source_location"]

_PACKAGE = str(Path(__file__).parents[2])
_TRACER = str(Path(_PACKAGE, "capture", "tracing.py"))
# What runs between the call of an operator and its recording, besides this package.
_DISPATCH = tuple(
    f"torch/{name}" for name in ("_ops.py", "overrides.py", "_tensor.py", "_compile.py", "_dynamo/", "_library/")
)


def source_location(excludes: Sequence[str]) -> Optional[str]:
    """Return `file:line` of the innermost frame that calls an operator and whose path contains none of `excludes`.

    Frames of the recording machinery never count; None when all frames of `forward` are excluded.
    """
    frame = sys._getframe(1)
    is_machinery = True
    while frame is not None:
        path = frame.f_code.co_filename
        if path == _TRACER and not is_machinery:
            return None
        is_machinery = is_machinery and (_is_ours(path) or any(file in path for file in _DISPATCH))
        if not is_machinery and not _is_ours(path) and not any(fragment in path for fragment in excludes):
            return f"{path}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _is_ours(path: str) -> bool:
    return path.startswith(_PACKAGE)
