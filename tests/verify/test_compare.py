"""`compare_training` finds nothing in a right port, and names what is wrong with a wrong one."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import porting
from porting import PlainTraining, PortingError, PortOptions, compare_training
from porting.verify.compare import KINDS


class Net(nn.Module):
    """Two linear layers with BatchNorm between, and one that takes no part."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8, bias=False)
        self.norm = nn.BatchNorm1d(8)
        self.last = nn.Linear(8, 3)
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        return self.last(self.norm(self.first(x)).relu())


class NetWithDropout(Net):
    """The same, drawing random numbers."""

    def forward(self, x):
        return F.dropout(super().forward(x), 0.3, self.training)


def sgd(model, **changes):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3, **changes})


def adamw(model, **changes):
    return torch.optim.AdamW(model.parameters(), **{"lr": 0.01, "weight_decay": 0.1, **changes})


def batches(options, num_calls=3):
    generator = torch.Generator().manual_seed(1)
    rows = max(options.samples_per_call, 8)
    return [
        (torch.randn(rows, 4, generator=generator), torch.randint(3, (rows,), generator=generator))
        for _ in range(num_calls)
    ]


def pair(model, *, plain_optimizer=sgd, ported_optimizer=sgd, loss=None, ported_loss=None, options=None, label=-1):
    """Make the same training twice; the port has the second of what is given."""
    twin, loss = copy.deepcopy(model), loss or nn.CrossEntropyLoss()
    options = options or PortOptions(keep_gradients=True)
    ported = porting.to_ipu(
        model, ported_loss or loss, optimizer=ported_optimizer(model), options=options, device="sim", label=label
    )
    return PlainTraining(twin, loss, plain_optimizer(twin)), ported


def found(plain, ported, **arguments):
    """Return kind, name and step of where the difference begins."""
    comparison = compare_training(plain, ported, batches(ported.options), **arguments)
    assert not comparison.holds
    assert str(comparison).startswith("plain PyTorch and the port: DIFFERENT")
    return comparison.first.kind, comparison.first.name, comparison.first.step


# -- ports that are right --------------------------------------------------------------------------------------------

GROUPINGS = {
    "plain": {},
    "accumulation": {"micro_batch": 4, "accumulation": 2, "output_mode": "all"},
    "device iterations": {"micro_batch": 8, "device_iterations": 3, "output_mode": "all"},
    "replicas": {"micro_batch": 4, "replicas": 2, "output_mode": "all", "broadcast_buffers": False},
    "all": {
        "micro_batch": 2,
        "accumulation": 3,
        "replicas": 2,
        "device_iterations": 2,
        "output_mode": "all",
        "broadcast_buffers": False,
    },
    "sum": {"micro_batch": 4, "accumulation": 2, "output_mode": "all", "reduction": "sum"},
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("optimizer", [sgd, adamw])
@pytest.mark.parametrize("grouping", GROUPINGS)
def test_a_port_trains_as_plain_pytorch_does(grouping, optimizer):
    options = PortOptions(keep_gradients=True, **GROUPINGS[grouping])
    plain, ported = pair(Net(), plain_optimizer=optimizer, ported_optimizer=optimizer, options=options)

    plain = replace(plain, accumulated=options.reduction)

    comparison = compare_training(plain, ported, batches(options), relative=1e-5)

    assert comparison.check() is comparison
    assert comparison.num_steps == 3 * options.device_iterations
    counts = {kind.kind: kind.num_compared for kind in comparison.kinds}
    assert counts["gradient"] == 5 * comparison.num_steps
    assert list(counts) == list(KINDS) == ["loss", "gradient", "update", "optimizer state", "buffer", "parameter"]


def test_random_numbers_are_the_same_on_both_sides():
    plain, ported = pair(NetWithDropout())

    compare_training(plain, ported, batches(ported.options)).check()


def test_the_hosts_random_stream_goes_on_as_if_only_the_port_had_run():
    plain, ported = pair(NetWithDropout())
    before = torch.get_rng_state()

    compare_training(plain, ported, batches(ported.options))

    assert torch.equal(torch.get_rng_state(), before)


def test_several_losses_and_labels_by_name_are_compared():
    class TwoHeads(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x):
            return self.a(x), self.b(x)

    def both(outputs, labels):
        return F.cross_entropy(outputs[0], labels[0]) + 2 * F.cross_entropy(outputs[1], labels[1])

    model = TwoHeads()
    twin = copy.deepcopy(model)
    x, y = batches(PortOptions())[0]
    keywords = [{"x": x, "first": y, "second": 2 - y}] * 2
    names = ("first", "second")
    options = PortOptions(keep_gradients=True)
    ported = porting.to_ipu(model, both, optimizer=sgd(model), options=options, label=names, device="sim")
    plain = PlainTraining(twin, both, sgd(twin), label=names)

    compare_training(plain, ported, keywords).check()


def test_the_loss_of_ones_own_script_can_be_given():
    def own(model, x, y):
        return F.cross_entropy(model(x), y)

    plain, ported = pair(Net())
    plain = replace(plain, loss=None, compute_loss=own)

    compare_training(plain, ported, batches(ported.options)).check()


def test_schedules_are_stepped_with_the_calls():
    plain, ported = pair(Net())
    schedule = torch.optim.lr_scheduler.StepLR(plain.optimizer, 1, gamma=0.5)
    other = ported.scheduler(torch.optim.lr_scheduler.StepLR(ported.port_optimizer.given, 1, gamma=0.5))
    plain = replace(plain, scheduler=schedule)

    compare_training(plain, ported, batches(ported.options), scheduler=other).check()


def test_frozen_layers_are_equal_and_have_no_gradient():
    model = Net()
    model.first.weight.requires_grad_(False)
    plain, ported = pair(model)

    comparison = compare_training(plain, ported, batches(ported.options)).check()

    assert {kind.kind: kind.num_compared for kind in comparison.kinds}["gradient"] == 4 * 3
    assert set(ported.gradients()) == {"norm.weight", "norm.bias", "last.weight", "last.bias"}


# -- ports that are wrong --------------------------------------------------------------------------------------------


def test_another_learning_rate_is_found_in_the_first_update():
    kind, _name, step = found(*pair(Net(), ported_optimizer=lambda model: sgd(model, lr=0.1001)))

    assert (kind, step) == ("update", 1)


@pytest.mark.parametrize("optimizer", [sgd, adamw])
def test_missing_weight_decay_is_found_in_the_first_update(optimizer):
    wrong = {"plain_optimizer": optimizer, "ported_optimizer": lambda model: optimizer(model, weight_decay=0)}

    kind, _name, step = found(*pair(Net(), **wrong))

    assert (kind, step) == ("update", 1)


def test_missing_momentum_is_found_in_the_second_update():
    kind, _name, step = found(*pair(Net(), ported_optimizer=lambda model: sgd(model, momentum=0)))

    assert (kind, step) in [("optimizer state", 1), ("update", 2)]


def test_a_layer_that_only_plain_pytorch_freezes_is_named():
    plain, ported = pair(Net())
    plain.model.first.weight.requires_grad_(False)

    assert found(plain, ported) == ("gradient", "first.weight", 1)


def test_a_layer_that_only_the_port_freezes_is_named():
    model = Net()
    plain, ported = pair(model)
    model.last.bias.requires_grad_(False)

    comparison = compare_training(plain, ported, batches(ported.options))

    assert (comparison.first.kind, comparison.first.name) == ("gradient", "last.bias")
    assert comparison.first.note == "only plain PyTorch has it"


def test_another_batchnorm_momentum_is_found_in_its_buffers():
    plain, ported = pair(Net())
    ported.model.norm.momentum = 0.2

    assert found(plain, ported) == ("buffer", "norm.running_mean", 1)


def test_another_loss_reduction_is_found_in_the_loss():
    kind, _name, step = found(*pair(Net(), ported_loss=nn.CrossEntropyLoss(reduction="sum")))

    assert (kind, step) == ("loss", 1)


def test_another_reduction_of_accumulated_gradients_is_found_in_the_gradient():
    options = PortOptions(micro_batch=4, accumulation=2, output_mode="all", reduction="sum", keep_gradients=True)

    kind, _name, step = found(*pair(Net(), options=options))

    assert (kind, step) == ("gradient", 1)


def test_swapped_labels_are_found_in_the_loss():
    def swapped(output, labels):
        return F.cross_entropy(output, labels.flip(0))

    kind, _name, step = found(*pair(Net(), ported_loss=swapped))

    assert (kind, step) == ("loss", 1)


def test_gradients_that_are_clipped_on_one_side_are_found_in_the_update():
    class Clipped(torch.optim.SGD):
        def step(self, closure=None):
            nn.utils.clip_grad_norm_([p for group in self.param_groups for p in group["params"]], 1e-3)
            return super().step(closure)

    plain, ported = pair(Net(), plain_optimizer=lambda model: Clipped(model.parameters(), lr=0.1))

    assert found(plain, ported)[0] == "update"


def test_a_batch_in_another_order_is_found_where_batchnorm_sees_other_micro_batches():
    options = PortOptions(micro_batch=4, accumulation=2, output_mode="all", keep_gradients=True)
    plain, ported = pair(Net(), options=options)
    halved = replace(plain, compute_loss=lambda model, x, y: F.cross_entropy(model(x[:2]), y[:2]))

    assert found(halved, ported)[0] == "loss"


@pytest.mark.filterwarnings(r"ignore:warning\[L008\]")
def test_what_is_not_a_number_is_a_difference():
    class Rooted(nn.Linear):
        def forward(self, x):
            return super().forward(x - 10).sqrt()

    kind, _name, _step = found(*pair(Rooted(4, 3)))

    assert kind == "loss"


# -- the finding -----------------------------------------------------------------------------------------------------


def test_check_raises_with_the_name_the_step_and_where_to_look():
    comparison = compare_training(*wrong_rate(), batches(PortOptions()))

    with pytest.raises(PortingError, match="in step 1 the update `[a-z.]+` is not that of plain PyTorch") as caught:
        comparison.check()

    assert caught.value.code == "V001"
    assert "learning rate" in caught.value.finding.help[0]


def wrong_rate():
    return pair(Net(), ported_optimizer=lambda model: sgd(model, lr=0.2))


def test_the_comparison_as_plain_values_says_the_same():
    comparison = compare_training(*wrong_rate(), batches(PortOptions()))

    plain = comparison.to_dict()

    assert plain["holds"] is False
    by_kind = {kind["kind"]: kind for kind in plain["kinds"]}
    assert by_kind["update"]["first"]["step"] == 1
    assert by_kind["update"]["first"]["relative"] == pytest.approx(1.0, abs=0.1)


def test_the_table_has_a_line_for_each_kind():
    comparison = compare_training(*wrong_rate(), batches(PortOptions()))

    lines = str(comparison).splitlines()

    assert [line.split()[:2] for line in lines if line.startswith(("ok", "FAILED"))][:3] == [
        ["FAILED", "loss"],
        ["FAILED", "gradient"],
        ["FAILED", "update"],
    ]
    assert lines[-2].startswith("it begins in step 1 with the update")


def test_a_wider_tolerance_lets_more_pass():
    plain, ported = pair(Net(), ported_optimizer=lambda model: sgd(model, lr=0.1001))

    assert compare_training(plain, ported, batches(ported.options, 1), relative=1e-2).holds


# -- what cannot be compared -----------------------------------------------------------------------------------------


def refusal(plain, ported, data=None, **arguments):
    with pytest.raises(PortingError) as caught:
        compare_training(plain, ported, batches(PortOptions()) if data is None else data, **arguments)
    assert caught.value.code == "V002"
    return caught.value.finding.message


def test_other_weights_at_the_start_are_refused_by_name():
    plain, ported = pair(Net())
    with torch.no_grad():
        plain.model.last.bias += 1e-3

    assert refusal(plain, ported) == "the models have other weights at the start: `last.bias`"


def test_a_port_of_another_precision_is_refused_with_both_dtypes():
    options = PortOptions(keep_gradients=True, precision="float16")
    model = nn.Linear(4, 3)
    twin = copy.deepcopy(model)
    ported = porting.to_ipu(model.half(), nn.CrossEntropyLoss(), optimizer=sgd(model), options=options, device="sim")

    with pytest.raises(PortingError, match="float32 in plain PyTorch and float16 in the port") as caught:
        compare_training(PlainTraining(twin, nn.CrossEntropyLoss(), sgd(twin)), ported, [])
    assert caught.value.code == "V002"


def test_one_model_for_both_is_refused():
    plain, ported = pair(Net())

    assert "same model" in refusal(PlainTraining(ported.model, plain.loss, sgd(ported.model)), ported)


def test_another_model_is_refused():
    plain, ported = pair(Net())
    other = nn.Linear(4, 3)

    assert "only one has" in refusal(PlainTraining(other, plain.loss, sgd(other)), ported)


def test_the_optimizer_of_another_model_is_refused():
    plain, ported = pair(Net())

    assert "not the plain model's" in refusal(PlainTraining(plain.model, plain.loss, sgd(Net())), ported)


def test_gradients_have_to_be_kept_or_left_out():
    plain, ported = pair(Net(), options=PortOptions())

    assert "keeps its gradients on the device" in refusal(plain, ported)
    comparison = compare_training(plain, ported, batches(PortOptions()), gradients=False).check()
    assert "gradient" not in [kind.kind for kind in comparison.kinds]


def test_no_batch_is_refused():
    assert refusal(*pair(Net()), data=[]) == "there is no batch to train with"


def test_a_port_in_eval_mode_is_refused():
    plain, ported = pair(Net())

    assert refusal(plain, ported.eval()) == "the port is in eval mode"


def test_batches_that_are_drawn_while_training_leave_dropout_alike():
    plain, ported = pair(NetWithDropout())
    data = torch.utils.data.TensorDataset(torch.randn(24, 4), torch.randint(3, (24,)))

    comparison = compare_training(plain, ported, torch.utils.data.DataLoader(data, batch_size=8, shuffle=True))

    assert comparison.holds, str(comparison)


def test_what_is_equal_within_the_tolerance_holds():
    plain, ported = pair(Net())

    comparison = compare_training(plain, ported, batches(ported.options))

    assert comparison.check() is comparison
    assert comparison.first is None
    assert all(kind.worst.is_inside for kind in comparison.kinds)


def test_a_difference_begins_in_the_earliest_step_and_there_with_the_first_kind():
    comparison = compare_training(*wrong_rate(), batches(PortOptions()))

    firsts = {kind.kind: kind.first.step for kind in comparison.kinds if kind.first is not None}
    assert firsts["update"] == 1
    assert firsts["loss"] == 2
    assert (comparison.first.kind, comparison.first.step) == ("update", 1)


def test_an_update_is_rounded_as_its_weight_is():
    # a step that is far below the last place of the weights that it changes
    def tiny(model):
        return torch.optim.SGD(model.parameters(), lr=1e-8)

    model = nn.Linear(4, 3)
    for parameter in model.parameters():
        nn.init.ones_(parameter)
    plain, ported = pair(model, plain_optimizer=tiny, ported_optimizer=lambda model: sgd(model, lr=2e-8, momentum=0))

    (update,) = (
        kind for kind in compare_training(plain, ported, batches(ported.options)).kinds if kind.kind == "update"
    )
    assert update.worst.is_inside
    assert update.worst.band > 1e-7


def test_the_error_points_to_where_a_fault_of_that_kind_lies():
    plain, ported = pair(Net())
    ported.model.norm.momentum = 0.2

    with pytest.raises(PortingError, match="V001") as caught:
        compare_training(plain, ported, batches(ported.options)).check()

    assert caught.value.finding.help == (KINDS["buffer"],)


def test_epochs_and_state_of_a_loop_are_no_part_of_it():
    plain, ported = pair(Net())

    kinds = {kind.kind for kind in compare_training(plain, ported, batches(ported.options)).kinds}

    assert kinds == set(KINDS)
