"""Two observations are compared: names by their ends, optimizers by their order, samples whatever their order is."""

from __future__ import annotations

import pytest
import torch

from porting.verify.observation import Observation, ObservedTraining
from porting.verify.program_comparison import ProgramComparison, match_names
from porting.verify.records import Record


def make_training(*, losses=(1.0, 0.5), rows=None, name="weight", values=None, settings=None, **facts):
    """Make what an optimizer of one parameter leaves in steps with these losses."""
    record, rows = Record(), rows or [torch.arange(4.0) + step for step in range(len(losses))]
    values = values or [float(step) for step in range(len(losses) + 1)]
    record.keep("parameter", 0, {name: torch.tensor([values[0]])})
    for step, loss in enumerate(losses, 1):
        record.losses[step], record.rates[step] = [loss], [0.1]
        record.settings[step] = {name: settings or {"lr": 0.1, "class": "SGD"}}
        for kind, tensors in (("parameter", {name: torch.tensor([values[step]])}), ("buffer", {}), ("gradient", {})):
            record.keep(kind, step, tensors)
    known = {step: [row] for step, row in enumerate(rows, 1)}
    return ObservedTraining(record, {name: (1,)}, known, eps=1e-7, **facts)


def compare(plain, ported):
    return ProgramComparison(*(Observation(list(side)) for side in (plain, ported)))


def outside(comparison):
    judgement = comparison.judge()
    return [
        (one.kind, one.name, one.note) for found in judgement.measured.values() for one in found if not one.is_inside
    ]


def test_equal_observations_have_nothing_outside():
    assert outside(compare([make_training()], [make_training()])) == []


@pytest.mark.parametrize("prefix", ["model.", "net.module.", "_orig_mod."])
def test_a_wrappers_prefix_is_no_other_name(prefix):
    names = {"0.weight": (2, 3), "0.bias": (2,), "1.weight": (2, 3)}

    found = match_names(names, {prefix + name: shape for name, shape in names.items()})

    assert found == {prefix + name: name for name in names}


def test_a_wrapper_of_the_plain_side_is_none_either():
    assert match_names({"module.a.weight": (1,)}, {"a.weight": (1,)}) == {"a.weight": "module.a.weight"}


def test_a_parameter_of_another_shape_is_not_the_same():
    assert match_names({"weight": (2,)}, {"weight": (3,)}) == {"weight": "weight"}


def test_names_with_nothing_in_common_are_matched_by_shape_and_order():
    assert match_names({"a": (1,), "b": (2,)}, {"x": (2,), "y": (1,)}) == {"x": "b", "y": "a"}


def test_other_names_are_told():
    comparison = compare([make_training()], [make_training(name="model.weight")])

    assert outside(comparison) == []
    assert list(comparison.iter_notes()) == ["1 parameter have other names, as `model.weight` in the port for `weight`"]


def test_a_parameter_that_one_side_has_is_found_at_the_start():
    ported = make_training()
    ported.record.keep("parameter", 0, {"weight": torch.zeros(1), "head": torch.ones(3)})

    assert ("parameter", "head", "only the port has it") in outside(compare([make_training()], [ported]))


def test_another_loss_is_found():
    found = outside(compare([make_training()], [make_training(losses=(1.0, 0.6))]))

    assert [kind for kind, _name, _note in found] == ["loss curve"]


def test_another_setting_is_found_beside_the_name_of_what_it_sets():
    found = outside(compare([make_training()], [make_training(settings={"lr": 0.2, "class": "SGD"})]))

    assert ("setting", "lr", "0.2 in the port, 0.1 in plain PyTorch") in found


def test_optimizers_are_matched_in_the_order_of_their_first_steps():
    second = make_training(name="critic", losses=(3.0, 2.0))
    plain, ported = [make_training(), second], [make_training(), make_training(name="critic", losses=(3.0, 2.5))]

    found = outside(compare(plain, ported))

    assert [(kind, name) for kind, name, _note in found] == [("output", "optimizer 2: loss")]


def test_an_optimizer_that_one_side_has_is_named():
    found = outside(compare([make_training(), make_training(name="critic")], [make_training()]))

    assert ("setting", "optimizer 2", "only plain PyTorch makes its steps") in found


def test_the_place_of_a_fault_is_that_of_its_optimizer():
    comparison = compare([make_training(), make_training(name="b")], [make_training(), make_training(name="b")])

    assert [comparison.find_training(name) for name in ("weight", "optimizer 2: b")] == [0, 1]


def test_samples_in_another_order_within_a_step_are_the_same():
    ported = make_training(rows=[torch.tensor([3.0, 1.0, 0.0, 2.0]), torch.arange(4.0) + 1], losses=(1.0, 0.6))

    assert "samples" not in [kind for kind, _name, _note in outside(compare([make_training()], [ported]))]


def test_other_samples_are_named_with_the_step_that_they_are_of():
    rows = [torch.arange(4.0) * 10 ** (step + 1) + 1 for step in range(2)]
    plain, ported = make_training(rows=rows), make_training(rows=rows[::-1], losses=(2.0, 0.5))

    notes = [note for kind, _name, note in outside(compare([plain], [ported])) if kind == "samples"]

    assert notes[0] == "3 of 4 samples in the port are others; they are those of step 2"


def test_fewer_samples_are_counted():
    ported = make_training(rows=[torch.arange(3.0), torch.arange(4.0) + 1], losses=(2.0, 0.5))

    found = outside(compare([make_training()], [ported]))

    assert ("samples", "batch", "4 rows in plain PyTorch, 3 in the port") in found


def test_batches_in_another_form_are_no_fault_where_all_else_is_equal():
    comparison = compare([make_training()], [make_training(rows=[torch.ones(4), torch.ones(4)])])

    judgement = comparison.judge()

    assert judgement.reasons["samples"] == "the models are given batches in other forms"
    assert "samples" not in judgement.measured


def test_a_call_of_two_steps_is_compared_at_its_end():
    ported = make_training(losses=(1.0, 0.5), rows=[torch.arange(4.0)], steps_per_call=2)
    for kind in ("parameter", "buffer", "gradient"):
        del ported.record.sketches[kind, 1]
    ported.rows = {2: [torch.cat([torch.arange(4.0), torch.arange(4.0) + 1])]}

    comparison = compare([make_training()], [ported])

    assert outside(comparison) == []
    assert comparison.judge().measured["update"][0].scale == 2.0


def test_losses_of_the_last_micro_batches_are_not_compared_with_those_of_large_ones():
    plain, ported = make_training(), make_training(losses=(3.0, 2.0), micro_batches=4)

    assert outside(compare([plain], [ported])) == []


def test_random_numbers_of_other_micro_batches_are_said_to_be_missing():
    comparison = compare([make_training(draws=True)], [make_training(draws=True, micro_batches=4)])

    assert "4 micro-batches a step in the port, 1 in plain PyTorch" in next(comparison.iter_missing())


def test_a_run_that_has_trained_something_else_is_told():
    comparison = compare([make_training()], [make_training()])

    said = comparison.add_runs(Observation([make_training(losses=(1.0, 0.7))]))

    assert said == "the loss of step 2 is 0.5 and 0.7, from the same seed"
    assert len(comparison.runs.others) == 1


def test_a_run_that_is_rounded_otherwise_widens_the_band():
    comparison = compare([make_training()], [make_training(losses=(1.0, 0.50001))])
    assert outside(comparison)

    comparison.add_runs(Observation([make_training(losses=(1.0, 0.50002))]))

    assert outside(comparison) == []


def test_evaluations_are_compared_where_both_return_the_same_shapes():
    plain, ported = make_training(), make_training()
    plain.record.keep("evaluation", 2, {"output 0": torch.ones(3), "output 1": torch.ones(2)})
    ported.record.keep("evaluation", 2, {"output 0": torch.zeros(3), "output 1": torch.zeros(5)})

    found = outside(compare([plain], [ported]))

    assert [(kind, name) for kind, name, _note in found] == [("evaluation", "output 0")]
