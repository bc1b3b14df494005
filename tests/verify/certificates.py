"""Certificates made by hand, for tests of their form, table and page."""

from __future__ import annotations

import math
from typing import Any, Dict, Sequence

from porting.diagnostics import Place
from porting.verify.certificate import (
    Certificate,
    Curves,
    KindVerdict,
    Location,
    Measured,
    PrecisionVerdict,
    Sensitivity,
    Verdict,
)


def make_certificate(**changes: Any) -> Certificate:
    """Make a certificate that holds, with everything that one can have."""
    losses = tuple(2.3 * 0.9**step for step in range(10))
    values = {
        "verdict": Verdict.PASS,
        "reason": "everything that was compared lies inside the noise band",
        "kinds": (
            KindVerdict("output", Verdict.PASS, 1, Measured("output", "output", 1, 1e-7, 2.0, 3e-7)),
            KindVerdict("gradient", Verdict.PASS, 40, Measured("gradient", "1.weight", 3, 2e-6, 0.5, 4e-6)),
            KindVerdict("buffer", Verdict.NOT_COMPARED, note="the model has none"),
        ),
        "num_steps": 10,
        "num_steps_asked": 10,
        "curves": Curves(
            plain=losses,
            ported=tuple(loss * 1.000001 for loss in losses),
            reference=losses,
            lowest=tuple(loss * 0.99 for loss in losses),
            highest=tuple(loss * 1.01 for loss in losses),
            plain_rates=(0.1,) * 5 + (0.05,) * 5,
            ported_rates=(0.1,) * 5 + (0.05,) * 5,
        ),
        "gradient_errors": {"0.weight": (1e-7, 0.5, 4e-7), "0.bias": (2e-8, 0.1, 5e-8)},
        "comparison": "one large batch of 8 samples",
        "notes": ("dropout is compared in distribution",),
        "program": "train.py:make",
        "settings": {"steps": 10, "seed": 0, "device": "sim", "$odd": [math.nan, {"$float": [0.5, -math.inf]}]},
        "surroundings": {"torch": "2.13.0", "python": "3.11", "threads": 1},
        "hashes": {"weights": "ab" * 32, "data": "cd" * 32},
        "seconds": 1.5,
        "record": make_record(losses),
        "sensitivity": Sensitivity("gradient", 3e-4, 1e-4),
    }
    return Certificate(**{**values, **changes})


def make_record(losses: Sequence[float]) -> Dict[str, Any]:
    """Make what a certificate keeps of two runs with these losses, the port's a little larger."""
    sides = [{str(step): [factor * loss] for step, loss in enumerate(losses, 1)} for factor in (1.0, 1.000001)]
    return {"plain_losses": sides[0], "losses": sides[1], "loss_factor": 1.0, "bands": [], "chaos": None}


def make_failed(**changes: Any) -> Certificate:
    """Make a certificate of a port that lost a gradient in its second step."""
    lost = Measured("gradient", "1.bias", 2, math.inf, 0.5, 1e-6, "only plain PyTorch has it")
    wrong = Measured("update", "1.bias", 2, 3e-2, 0.5, 1e-6)
    values = {
        "verdict": Verdict.FAIL,
        "reason": "the gradient of `1.bias` is lost in step 2",
        "kinds": (
            KindVerdict("output", Verdict.PASS, 1, Measured("output", "output", 1, 1e-7, 2.0, 3e-7)),
            KindVerdict("gradient", Verdict.FAIL, 40, lost, lost),
            KindVerdict("update", Verdict.FAIL, 40, wrong, wrong),
        ),
        "location": Location(
            "backward",
            2,
            "1",
            "aten.addmm",
            Place("train.py", 3, 8),
            "the bias is detached",
            "import torch\nprint('only <plain> has it')\n",
        ),
        "precision": PrecisionVerdict("float16", False, "half precision does not explain this", 128.0),
    }
    return make_certificate(**{**values, **changes})
