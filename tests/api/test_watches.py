"""Parameters frozen or freed, and hooks added, after a step was compiled are said in a later call, once."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from porting import to_ipu

BATCH = torch.rand(6, 4), torch.randint(3, (6,))


def compiled(model=None):
    ported = to_ipu(model or nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)), nn.CrossEntropyLoss(), device="sim")
    ported(*BATCH)
    return ported


def said_in(ported, num_calls=1):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _call in range(num_calls):
            ported(*BATCH)
    return [str(warning.message) for warning in caught]


def freeze(model):
    model[1].weight.requires_grad_(False)


def hook_a_parameter(model):
    model[1].weight.register_hook(lambda gradient: gradient * 0)


def hook_its_update(model):
    model[1].weight.register_post_accumulate_grad_hook(lambda parameter: None)


def hook_a_module(model):
    model[1].register_full_backward_hook(lambda module, gradients, _outputs: gradients)


CHANGES = {
    freeze: "`requires_grad` changed after the step was compiled (`1.weight`), which goes on as before",
    hook_a_parameter: "a gradient hook was added after the step was compiled (`1.weight`)",
    hook_its_update: "a gradient hook was added after the step was compiled (`1.weight`)",
    hook_a_module: "a backward hook was added to a module after the step was compiled (`1`)",
}


def test_nothing_is_said_of_a_model_that_stays_as_it_was():
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))
    model[0].requires_grad_(False)

    assert said_in(compiled(model), 3) == []


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_said_at_the_next_call(change):
    ported = compiled()
    change(ported.model)

    (text,) = said_in(ported)

    assert "D005" in text
    assert CHANGES[change] in text
    assert "said_in" not in text


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_said_once(change):
    ported = compiled()
    change(ported.model)

    assert len(said_in(ported, 5)) == 1


def test_several_changes_are_one_warning():
    ported = compiled()
    ported.model[0].requires_grad_(False)

    (text,) = said_in(ported, 2)

    assert "(`0.weight` and 1 more)" in text


def test_what_changes_back_and_again_is_said_again():
    ported = compiled()
    weight = ported.model[0].weight
    freeze_and_free = [weight.requires_grad_, lambda flag: said_in(ported)]
    texts = []
    for flag in (False, True, False):
        freeze_and_free[0](flag)
        texts.append(len(freeze_and_free[1](flag)))

    assert texts == [1, 0, 1]


def test_a_change_that_the_port_itself_makes_is_not_said_twice():
    ported = compiled()
    with pytest.warns(UserWarning, match="D005"):
        ported.requires_grad_(False)

    assert said_in(ported, 2) == []


def test_a_step_that_is_compiled_anew_follows():
    ported = compiled()
    freeze(ported.model)
    ported.destroy()
    ported(*BATCH)

    assert said_in(ported) == []


def test_a_large_model_is_seen_in_turns():
    layers = [nn.Linear(4, 4) for _layer in range(20)]
    ported = compiled(nn.Sequential(*layers, nn.Linear(4, 3)))  # 42 parameters, eight of them in a call
    layers[13].bias.requires_grad_(False)

    assert len(said_in(ported, 6)) == 1
