"""Report what the torch of this process lacks, and whether it was tested; each capture of a step asks for it, once."""

from __future__ import annotations

from functools import lru_cache

import torch

from ..diagnostics import Finding, log_finding
from ..torch_insides import SUBJECTS, probe_all, require_all, tell_loss
from .torch_versions import find_newest_tested, is_newer_than_tested

__all__ = ["check_torch"]


@lru_cache(maxsize=None)
def check_torch() -> None:
    """Log E013 for each loss that a missing part causes and E014 for a torch newer than all tested ones.

    Raises MissingPart where no step can be captured without a part.
    """
    require_all()
    losses = probe_all()
    for loss in losses.values():
        tell_loss(f"torch {torch.__version__} has {loss}")
    if is_newer_than_tested(torch.__version__):
        newest = ".".join(map(str, find_newest_tested()))
        found = f"{len(SUBJECTS) + 1 - len(losses)} of {len(SUBJECTS) + 1} kinds of private parts are all there"
        log_finding(
            Finding(
                "E014",
                message=f"torch {torch.__version__} is newer than any that was tested: the newest is {newest}",
                notes=(found, "those of torch's compiler are looked for where a step is compiled"),
                help="`porting verify` compares the port with plain PyTorch; `porting doctor` lists what was tested",
            )
        )
