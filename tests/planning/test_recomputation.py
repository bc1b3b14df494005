"""What is kept is chosen by the root of the number of outputs, or in a budget, and gradients stay what they were."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from porting import PortOptions, memory_report, plan, to_ipu
from porting.diagnostics import OptionError
from porting.planning.memory_model import Layout, measure_ipus
from porting.planning.recomputation import choose_kept, resolve_recompute
from tests.planning.step_chains import chain

LAYOUT = Layout(begins=(0,), ipus=(0,), marks=(), recomputes=False, accumulates=True, state_bytes=8)


def costly_chain(length):
    step = chain(length)
    busy = (replace(op, flops=1000 * (number + 1)) for number, op in enumerate(step.operations))
    return replace(step, operations=tuple(busy))


def waiting_of(step, names, layout=LAYOUT):
    memory = max(
        measure_ipus(step, replace(layout, marks=step.ends_of(names), recomputes=True)), key=lambda one: one.kept_bytes
    )
    return memory.kept_bytes + memory.recomputed_bytes


@pytest.mark.parametrize("root", [4, 6])
def test_the_root_of_the_number_of_outputs_is_kept(root):
    step = chain(root * root)

    names = choose_kept(step, LAYOUT, "sqrt")

    assert root / 2 <= len(names) <= 2 * root
    assert waiting_of(step, names) <= 100 * (2 * root + 1)


@pytest.mark.parametrize("outputs", [12, 16, 24])
def test_what_waits_stays_within_its_budget(outputs):
    step = costly_chain(36)

    names = choose_kept(step, LAYOUT, f"{outputs * 100 / 1e6} MB")

    assert waiting_of(step, names) <= 100 * outputs


def test_a_larger_budget_keeps_the_outputs_that_save_the_most():
    step = costly_chain(36)
    small, large = (set(choose_kept(step, LAYOUT, f"{outputs * 100 / 1e6} MB")) for outputs in (14, 24))

    assert small < large
    assert "layer34" in large - set(choose_kept(step, LAYOUT, "sqrt"))


def test_a_budget_that_holds_everything_recomputes_nothing():
    assert choose_kept(chain(16), LAYOUT, "1 MB") == ()


def test_a_budget_of_stages_holds_for_each_ipu():
    two = replace(LAYOUT, begins=(0, 18), ipus=(0, 1), recomputes=True)
    step = costly_chain(36)

    names = choose_kept(step, two, "0.003 MB")

    assert 0 < waiting_of(step, names, two) <= 3000


def test_a_budget_that_is_too_small_is_refused_with_the_least():
    with pytest.raises(OptionError, match='use `recompute="0.01 MB"` or more') as caught:
        choose_kept(chain(36), LAYOUT, "0.0001 MB")

    assert caught.value.code == "P002"


def test_names_stay_as_they_are():
    options = PortOptions(recompute=["layer1"])

    assert resolve_recompute(chain(4), options, LAYOUT) == (options, LAYOUT)


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(9))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


BATCH = torch.linspace(-1, 1, 8 * 16).reshape(8, 16), torch.linspace(1, -1, 8 * 16).reshape(8, 16)


def made():
    torch.manual_seed(0)
    model = Tower()
    return model, nn.MSELoss(), torch.optim.SGD(model.parameters(), lr=0.1)


def gradients(**options):
    model, loss, optimizer = made()
    options = PortOptions(micro_batch=4, accumulation=2, keep_gradients=True, output_mode="all", **options)
    ported = to_ipu(model, loss, optimizer=optimizer, options=options, device="sim", example=BATCH)
    ported(*BATCH)
    return ported.options.recompute, ported.gradients()


@pytest.mark.parametrize(
    "options",
    [{"recompute": "sqrt"}, {"recompute": "0.002 MB"}, {"recompute": "sqrt", "computation_order": "chen"}],
)
def test_gradients_are_those_of_plain_pytorch(options):
    model, loss, _optimizer = made()
    loss(model(BATCH[0]), BATCH[1]).backward()

    kept, found = gradients(**options)

    assert kept
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-5, atol=1e-7)


def test_a_port_has_what_its_plan_has_chosen():
    model, loss, optimizer = made()
    options = PortOptions(micro_batch=8, recompute="sqrt")

    planned = plan(model, loss, BATCH, optimizer, options, ipus=1)
    ported = to_ipu(model, loss, optimizer=optimizer, options=options, device="sim", example=BATCH)

    assert ported.options.recompute == planned.options.recompute
    assert memory_report(ported, BATCH, target="bow-pod16").bytes_per_ipu == planned.bytes_per_ipu


def test_a_policy_needs_a_batch_to_plan_for():
    model, loss, optimizer = made()

    with pytest.raises(OptionError, match="no batch to plan what is kept for"):
        to_ipu(model, loss, optimizer=optimizer, options=PortOptions(recompute="sqrt"), device="sim")
