"""Validation is over all samples, on the device, and refuses what it cannot measure."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting import fit, to_ipu
from porting.diagnostics import BatchError, OptionError
from porting.training_loop.validation import Validation, check_metrics
from tests.training_loop.small_training import LOSS, accuracy, make_loader, make_model, make_port


def measure(validation):
    return validation.measure(lambda *_of_call: None)


def test_means_are_over_samples_as_in_plain_pytorch():
    ported, _optimizer = make_port()
    loader = make_loader(20)
    plain = make_model()
    inputs, labels = loader.dataset.tensors

    measured = measure(Validation(ported, loader, {"accuracy": accuracy}))

    output = plain(inputs)
    assert measured["val_loss"] == pytest.approx(LOSS(output, labels).item(), rel=1e-5)
    assert measured["val_accuracy"] == pytest.approx(accuracy(output, labels).item())


def test_a_smaller_last_batch_needs_no_executable_of_its_own():
    ported, _optimizer = make_port()

    measure(Validation(ported, make_loader(20), {}))

    assert [record.num_compilations for record in ported.report().executors if record.name == "evaluation"] == [1]


def test_a_port_that_was_evaluated_on_larger_batches_may_be_validated_on_smaller_ones():
    ported, _optimizer = make_port()
    loader = make_loader(6)
    inputs, labels = make_loader(12).dataset.tensors
    ported.eval()(inputs, labels)

    measured = measure(Validation(ported, loader, {}))

    assert measured == pytest.approx(measure(Validation(make_port()[0], loader, {})), rel=1e-5)


def test_device_iterations_change_no_mean():
    inputs, labels = make_loader(24).dataset.tensors
    halves = [(inputs[:12], labels[:12]), (inputs[12:], labels[12:])]

    several = measure(Validation(make_port(micro_batch=4, device_iterations=3)[0], halves, {"accuracy": accuracy}))
    single = measure(Validation(make_port()[0], make_loader(24), {"accuracy": accuracy}))

    assert several == pytest.approx(single, rel=1e-5)


def test_a_model_with_a_loss_of_its_own_is_validated_by_it():
    class OwnLoss(nn.Linear):
        def forward(self, x):
            return super().forward(x).pow(2).mean()

    torch.manual_seed(0)
    model = OwnLoss(4, 3)
    ported = to_ipu(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), device="sim")
    batch = torch.ones(6, 4)

    assert measure(Validation(ported, [batch], {}))["val_loss"] == pytest.approx(model(batch).item(), rel=1e-5)
    with pytest.raises(BatchError, match="B001"):
        measure(Validation(ported, [batch, batch[:3]], {}))


def test_no_batch_has_no_mean():
    value = measure(Validation(make_port()[0], [], {}))["val_loss"]

    assert value != value


def test_a_metric_that_collects_begins_anew_in_each_epoch():
    class Count:
        total = 0

        def reset(self):
            self.total = 0

        def update(self, _output, labels):
            self.total += len(labels)

        def compute(self):
            return self.total

    history = fit(
        make_port()[0], make_loader(), 2, progress=False, validation=make_loader(14), metrics={"count": Count()}
    )

    assert history.metrics["val_count"] == [14.0, 14.0]


def test_metrics_need_a_validation():
    with pytest.raises(OptionError, match="without `validation`"):
        fit(make_port()[0], make_loader(), 1, progress=False, metrics={"accuracy": accuracy})


@pytest.mark.parametrize("metric", ["accuracy", nn.Linear, None], ids=str)
def test_what_is_no_metric_is_refused(metric):
    with pytest.raises(OptionError, match="P002"):
        check_metrics({"metric": metric}, has_validation=True)
