"""The preflight of a training program: `porting.check(model, loss, batch)`, and what `porting check` does.

The package can be called: `porting.check(...)` is `porting.check.model_check.check(...)`. Names are loaded on first use
(PEP 562), so that reading a program's source needs no torch.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from porting.support.late_names import read_late_names

if TYPE_CHECKING:
    from porting.check.formats import write_report as write_report
    from porting.check.html_page import write_report_page as write_report_page
    from porting.check.light_models import make_light as make_light
    from porting.check.model_check import check as check
    from porting.check.report import Report as Report

__all__, __getattr__, __dir__ = read_late_names(globals())


class _CallablePackage(ModuleType):
    """This package as a function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Check a model; see `porting.check.model_check.check`."""
        return self.check(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
