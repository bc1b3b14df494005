"""What a plan proposes changes where a step runs, and not what it learns; and the large model fits with all of it."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Dict, Sequence

from porting.recipe_chain import chain_of_equal_losses, demand, demand_falling, holds, reaches
from porting.recipes.it_does_not_fit import workload

NUM_STEPS = 6


def does_not_fit(_step: object) -> str:
    """Check that the large model is refused as it is, with a finding that names remedies."""
    planned = workload.plan_large(ipus=1, micro_batch=4)
    demand(planned.verdict == "does not fit" and planned.finding.code == "M001", planned.verdict)
    demand(planned.suggested.num_ipus == 4, f"{planned.suggested.num_ipus} IPUs are suggested")
    return f"{planned.share:.0%} of an IPU, and four are suggested"


def ladder_helps(_step: object) -> str:
    """Check that a smaller micro-batch and the options of the ladder take memory off the one IPU."""
    one = {"ipus": 1, "accumulation": 40}
    changes: Sequence[Dict[str, Any]] = ({"micro_batch": 4}, {}, workload.LADDER)
    return f"{demand_falling([workload.plan_large(**one, **change).share for change in changes])} of an IPU"


def four_ipus_hold_it(step: ModuleType) -> str:
    """Check that the large model may fit on four IPUs and not on two, and that the port takes the plan's stages."""
    planned = workload.plan_model(workload.make_model(), step.OPTIONS, ipus=4)
    demand(step.STAGES == planned.stages, f"the plan of the small model has the stages {planned.stages}")
    two, four = (workload.plan_large(ipus=ipus, accumulation=40, **workload.LADDER) for ipus in (2, 4))
    return demand(four.fits and not two.fits, f"{two.share:.0%} on two IPUs, {four.share:.0%} on four")


def more_replicas_pay(_step: object) -> str:
    """Check that the forecast has four replicas on a Pod16, and that more train faster."""
    planned = workload.plan_large(ipus=4, accumulation=256, **workload.LADDER)
    rates = [row.samples_per_second for row in planned.scaling]
    demand(planned.forecast.replicas == 4 and rates == sorted(rates), ", ".join(f"{rate:,.0f}" for rate in rates))
    return f"{planned.forecast.samples_per_second:,.0f} samples a second"


def learnt(step: ModuleType) -> float:
    """Train for 30 steps and return the test loss minus the least possible one."""
    return float(step.train(30).measured.test_loss - workload.load_text()[2])


CHECKS = (
    reaches(0, "test loss above the least possible", at_most=1.2, measure=learnt),
    *chain_of_equal_losses(1, 4),
    holds(1, "the large model does not fit", does_not_fit, slow=True),
    holds(2, "each option takes memory off", ladder_helps, slow=True),
    holds(3, "four IPUs hold the large model, and two do not", four_ipus_hold_it, slow=True),
    holds(4, "more replicas train faster", more_replicas_pay, slow=True),
)
