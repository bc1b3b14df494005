"""A pipeline changes where a step runs, and not what it learns; half precision changes it in the last digits."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import torch

import porting
from porting.models import gpt
from porting.recipe_chain import chain_of_equal_losses, close_losses, demand, holds, reaches
from porting.recipes.gpt_pipeline import workload

NUM_STEPS = 6


def runs_on(num_stages: int, num_ipus: int) -> Any:
    """Make a check that a step is cut into this number of stages on this number of IPUs."""

    def look(step: ModuleType) -> str:
        options = step.OPTIONS
        found = len(options.stage_ipus), options.num_ipus
        demand(found == (num_stages, num_ipus), f"{found[0]} stages on {found[1]} IPUs")
        model = workload.make_model()
        ported = porting.to_ipu(model, gpt.loss, options=options, returns=["loss"])
        tokens = torch.zeros(options.samples_per_call, workload.LENGTH, dtype=torch.int64)
        ported.compile(tokens, tokens)
        (line,) = re.findall(r"^pipeline +(.*)$", str(ported.report()), re.MULTILINE)
        return str(line)

    return look


def memory_shrinks(_step: object) -> str:
    """Check that GPT-2 needs less of each IPU in a pipeline than on one IPU, and still less with recomputation."""
    options = [{}, {"accumulation": 16, "stages": workload.GPT2_STAGES}]
    options.append({**options[1], "recompute": workload.GPT2_BLOCKS})
    reports = [workload.look_at_gpt2(**changes) for changes in options]
    middles = [max(memory.total_bytes for memory in report.ipus[1:] or report.ipus) for report in reports]
    return demand(middles == sorted(middles, reverse=True), ", ".join(f"{size / 2**20:,.0f} MiB" for size in middles))


def small_model_fits(step: ModuleType) -> str:
    """Check that the recipe's own model fits, by the memory look."""
    report = workload.look(workload.make_model(), step.OPTIONS)
    demand(report.verdict == "fits", report.verdict)
    return f"{report.share:.0%} of an IPU"


def half_takes_less(step: ModuleType) -> str:
    """Check that weights take half of the memory in half precision."""
    full = workload.look(workload.make_model(), step.OPTIONS.replace(precision="float32"))
    half = workload.look(workload.make_model().half(), step.OPTIONS)
    share = half.ipus[0].weight_bytes / full.ipus[0].weight_bytes
    demand(share == 0.5, f"{share:.2f} of it")
    return "half of it"


def learnt(step: ModuleType) -> float:
    """Train for 60 steps and return the test loss minus the least possible one."""
    return float(step.train(60).measured.test_loss - workload.load_text()[2])


CHECKS = (
    reaches(0, "test loss above the least possible", at_most=0.8, measure=learnt),
    *chain_of_equal_losses(1, 7),
    holds(3, "two IPUs are used", runs_on(3, 2)),
    holds(4, "four IPUs are used", runs_on(5, 4)),
    holds(6, "the model of the recipe fits", small_model_fits),
    holds(6, "each remedy takes memory off an IPU of GPT-2", memory_shrinks, slow=True),
    reaches(8, "test loss above the least possible", at_most=0.8, measure=learnt, slow=True),
    # 0.002 in the first 100 steps when it was written
    close_losses(8, like=7, relative=0.01, because="weights and activations have 11 bits instead of 24"),
    holds(8, "weights take half of the memory", half_takes_less),
)
