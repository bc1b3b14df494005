"""What processes of observed programs load, for `ProgramServer`: they are forks of one that has it already."""

from __future__ import annotations

import torch

import porting.simulator
import porting.verify.observed_process

__all__ = ["porting"]

# every optimizer loads the compiler
torch.compiler.disable(lambda: None)
