"""What a call notices on the host and says once: frozen parameters, hooks, losses and outputs that are no numbers."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from porting import PortOptions, to_ipu
from porting.diagnostics import PortingWarning

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


def observe_a_module(model):
    model[1].register_forward_hook(lambda module, args, output: None)


CHANGES = {
    freeze: "`requires_grad` changed after the step was compiled (`1.weight`), which goes on as before",
    hook_a_parameter: "a gradient hook was added after the step was compiled (`1.weight`)",
    hook_its_update: "a gradient hook was added after the step was compiled (`1.weight`)",
    hook_a_module: "a backward hook was added to a module after the step was compiled (`1`)",
    observe_a_module: "a forward hook was added to a module after the step was compiled (`1`)",
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


def test_a_hook_that_was_there_when_the_step_was_compiled_is_not_said():
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))
    observe_a_module(model)

    assert said_in(compiled(model), 3) == []


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


# -- losses and outputs that are no numbers ----------------------------------------------------------------------------


def log_loss(output, label):
    return torch.log(label).mean() + output.mean()


def make_ported(**options):
    return to_ipu(nn.Linear(4, 1), log_loss, device="sim", options=PortOptions(**options))


GOOD = torch.ones(4, 4), torch.ones(4, 1)
BAD = torch.ones(4, 4), torch.zeros(4, 1)


def codes_of(caught):
    return [warning.message.finding.code for warning in caught if isinstance(warning.message, PortingWarning)]


def test_the_first_loss_that_is_no_number_is_told_once_with_its_step():
    ported = make_ported()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch in (GOOD, GOOD, BAD, BAD):
            ported(*batch)

    assert codes_of(caught) == ["L008"]
    assert "the loss is -inf in step 3" in str(caught[-1].message)


def test_the_report_has_the_finding_and_the_call():
    ported = make_ported()

    with pytest.warns(PortingWarning):
        ported(*BAD)

    assert ported.report().first_call_not_finite == 1
    assert "the loss is -inf in step 1" in str(ported.report())
    assert "not finite  since step 1; `ported.find_nan(batch)`" in str(ported.report())


def test_a_finite_training_has_no_such_line():
    ported = make_ported()
    ported(*GOOD)

    assert "not finite" not in str(ported.report())


def test_a_call_of_several_steps_names_them():
    ported = make_ported(device_iterations=2, output_mode="all")
    ported(*GOOD)

    with pytest.warns(PortingWarning, match=r"call 2 \(steps 3 to 4\)"):
        ported(*BAD)


def test_finite_losses_are_no_finding():
    ported = make_ported()
    ported(*GOOD)

    assert "L008" not in [finding.code for finding in ported.report().findings]
    assert ported.report().first_call_not_finite is None


def test_outputs_of_inference_that_are_nan_are_told():
    ported = to_ipu(nn.Linear(4, 1), nn.MSELoss(), device="sim")
    inference = ported.inference()
    inference(GOOD[0])

    with pytest.warns(PortingWarning, match="an output of the inference is NaN in call 2"):
        inference(torch.full((4, 4), float("nan")))
