"""What a step leaves in memory is what autograd saves in an eager step, to the byte."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from porting import PortingError, PortOptions, memory_report, to_ipu
from porting.models import gpt
from porting.planning.step_walk import look_at_step


def saved_in_eager(model, loss, x, y):
    """Add up the memory that autograd keeps in a plain step; integers of 64 bits have 32 on the device."""
    state = {t.untyped_storage()._cdata for t in [*model.parameters(), *model.buffers()]}
    kept = {}

    def note(tensor):
        if tensor.untyped_storage()._cdata not in state:
            kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with sdpa_kernel([SDPBackend.MATH]), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss(model(x), y)
    halves = {torch.int64: 2}
    return sum(tensor.untyped_storage().nbytes() // halves.get(tensor.dtype, 1) for tensor in kept.values())


def step_of(model, loss, x, y, **options):
    ported = to_ipu(model, loss, options=PortOptions(**options), device="sim")
    return look_at_step(ported.model, ported.port.wrapped, [x, y], {}, ported.options)


def perceptron():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))
    return model, nn.CrossEntropyLoss(), torch.randn(8, 16), torch.randint(10, (8,))


def convolutional():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(8 * 49, 10),
    )
    return model, nn.CrossEntropyLoss(), torch.randn(4, 3, 16, 16), torch.randint(10, (4,))


def transformer():
    model = gpt.build("small", num_layers=2, width=32, num_heads=4, length=16, dropout=0.1)
    tokens = torch.randint(256, (3, 16))
    return model, gpt.loss, tokens, tokens.clone()


@pytest.mark.parametrize("make", [perceptron, convolutional, transformer])
def test_what_waits_for_the_backward_pass_is_what_autograd_saves(make):
    model, loss, x, y = make()

    assert step_of(model, loss, x, y).kept_bytes == saved_in_eager(model, loss, x, y)


def test_nothing_changes_and_no_hook_stays():
    model, loss, x, y = convolutional()
    model.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random_state = torch.get_rng_state()

    step_of(model, loss, x, y, recompute=["0"])

    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(random_state, torch.get_rng_state())
    assert not any(module.training or module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_operators_know_their_stage_and_the_modules_they_end():
    model, loss, x, y = perceptron()
    step = step_of(model, loss, x, y, stages={"2": 1}, accumulation=3)

    linears = [op for op in step.operations if op.is_product]

    assert [op.stage for op in linears] == [0, 1]
    assert [op.ends for op in linears] == [("0",), ("2",)]


def test_each_call_of_a_module_is_known_by_its_number_and_first_operator():
    layer = nn.Linear(8, 8)
    step = step_of(nn.Sequential(layer, nn.ReLU(), layer), nn.MSELoss(), torch.ones(2, 8), torch.ones(2, 8))

    assert list(step.calls) == ["0#1", "1", "0#2"]
    assert [step.operations[at].module_path for at in step.calls.values()] == ["0", "1", "0"]
    assert step.called == {"0": "Linear", "1": "ReLU"}


def test_a_call_without_an_operator_of_its_own_is_no_beginning():
    model = nn.Sequential(nn.Linear(8, 8), nn.Identity(), nn.ReLU())
    step = step_of(model, nn.MSELoss(), torch.ones(2, 8), torch.ones(2, 8))

    assert list(step.calls) == ["0", "2"]


def test_calls_in_the_body_of_a_loop_are_no_beginnings(poptorch):
    class Repeating(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.cell = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            return poptorch.for_loop(3, lambda value: self.cell(value), [self.enter(x)])[0]

    ported = to_ipu(Repeating(), device="sim")
    forward = ported.port.wrapped.for_inference()
    step = look_at_step(ported.model, forward, [torch.ones(2, 8)], {}, ported.options, mode="inference")

    assert list(step.calls) == ["enter"]


def test_a_branch_cannot_be_predicted(poptorch):
    class Branching(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            return poptorch.cond((x.sum() > 0).reshape(1), lambda z: z * 2, [y], lambda z: z, [y])[0]

    ported = to_ipu(Branching(4, 2), device="sim")

    with pytest.raises(PortingError) as caught:
        memory_report(ported, torch.ones(2, 4), mode="inference")

    assert caught.value.code == "M002"


def test_a_large_model_takes_no_memory_of_its_own():
    with torch.device("meta"):
        large = gpt.build("small", num_layers=2, width=4096, num_heads=32, length=512, vocabulary=50_257)
    tokens = torch.zeros(2, 512, dtype=torch.int64)

    step = step_of(large, gpt.loss, tokens, tokens)

    assert sum(torch.Size(info.shape).numel() for info in step.parameters) > 600_000_000
