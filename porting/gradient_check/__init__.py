"""This package compares gradients with differences, and names the element where a backward pass is wrong.

Those use it who write operators, substitutes or modules with a backward pass of their own; it needs no port. The public
names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from porting.support.late_names import read_late_names

if TYPE_CHECKING:
    from porting.gradient_check.check import GradientCheck as GradientCheck
    from porting.gradient_check.check import check_backward as check_backward
    from porting.gradient_check.check import numerical_grad as numerical_grad

__all__, __getattr__, __dir__ = read_late_names(globals())
