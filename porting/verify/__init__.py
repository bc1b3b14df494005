"""Prove that a port trains what plain PyTorch trains, step by step and with every gradient.

The package can be called: `porting.verify(...)` is `porting.verify.verify.verify(...)`. Names are loaded on first use
(PEP 562).
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from porting.support.late_names import read_late_names

if TYPE_CHECKING:
    from porting.gradient_check import GradientCheck as GradientCheck
    from porting.gradient_check import check_backward as check_backward
    from porting.gradient_check import numerical_grad as numerical_grad
    from porting.verify.certificate import Certificate as Certificate
    from porting.verify.certificate import Verdict as Verdict
    from porting.verify.compare import KINDS as KINDS
    from porting.verify.compare import TrainingComparison as TrainingComparison
    from porting.verify.compare import compare_training as compare_training
    from porting.verify.plain_training import PlainTraining as PlainTraining
    from porting.verify.ported_run import PortedTraining as PortedTraining

__all__, __getattr__, __dir__ = read_late_names(globals())


class _CallablePackage(ModuleType):
    """This package as a function."""

    def __call__(self, *args: object, **kwargs: Any) -> Any:
        """Prove a port; see `porting.verify.verify.verify`."""
        from porting.verify.verify import verify

        return verify(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
