"""The loss ignores the padding, and layers with statistics of the batch or of a replica are noted."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from porting import PortOptions
from porting.adapters.padding_checks import check_ignore_label, note_batchnorm, note_statistics_of_one_replica
from porting.diagnostics import BatchError, Severity


class Composed(nn.Module):
    """A loss made of other losses."""

    def __init__(self, *parts):
        super().__init__()
        self.parts = nn.ModuleList(parts)


def own_loss(output, labels):
    return F.cross_entropy(output, labels)


def own_loss_that_says(output, labels, ignore_index=-1):
    return F.cross_entropy(output, labels, ignore_index=ignore_index)


# losses that agree


@pytest.mark.parametrize(
    ("loss", "ignore_label"),
    [
        (nn.CrossEntropyLoss(), -100),
        (nn.CrossEntropyLoss(ignore_index=-1), -1),
        (nn.NLLLoss(ignore_index=255), 255),
        (F.cross_entropy, -100),
        (F.nll_loss, -100),
        (functools.partial(F.cross_entropy, ignore_index=-1), -1),
        (functools.partial(F.cross_entropy, reduction="sum"), -100),
        (functools.partial(nn.CrossEntropyLoss(ignore_index=3)), 3),
        (Composed(nn.CrossEntropyLoss(ignore_index=-1), nn.NLLLoss(ignore_index=-1)), -1),
        (own_loss_that_says, -1),
    ],
)
def test_a_loss_that_ignores_the_paddings_label_passes(loss, ignore_label):
    assert check_ignore_label(loss, ignore_label) is None


# losses that do not


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(),
        F.cross_entropy,
        functools.partial(F.cross_entropy, reduction="sum"),
        functools.partial(F.cross_entropy, ignore_index=-100),
        Composed(nn.CrossEntropyLoss(ignore_index=-1), nn.CrossEntropyLoss()),
    ],
)
def test_a_loss_that_ignores_another_label_is_an_error_with_both_numbers(loss):
    with pytest.raises(BatchError, match="the padding's label is -1, but the loss ignores -100") as caught:
        check_ignore_label(loss, ignore_label=-1)

    assert caught.value.code == "B007"
    assert "give the loss `ignore_index=-1`" in caught.value.finding.help


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        (nn.MSELoss(), "MSELoss"),
        (nn.BCEWithLogitsLoss(), "BCEWithLogitsLoss"),
        (F.mse_loss, "mse_loss"),
        (functools.partial(F.l1_loss, reduction="sum"), "l1_loss"),
    ],
)
def test_a_loss_of_torchs_that_ignores_nothing_is_an_error(loss, name):
    with pytest.raises(BatchError, match=f"`{name}` ignores no label, so the padding would enter the loss") as caught:
        check_ignore_label(loss)

    assert caught.value.code == "B007"


def test_the_error_is_true_padding_does_enter_such_a_loss():
    target = torch.tensor([1.0, 2.0])

    padded = F.mse_loss(torch.zeros(3), torch.cat([target, torch.tensor([-100.0])]))

    assert padded != F.mse_loss(torch.zeros(2), target)


# losses that do not say


@pytest.mark.parametrize(("loss", "name"), [(own_loss, "own_loss"), (Composed(), "Composed"), (None, "NoneType")])
def test_a_loss_that_does_not_say_is_a_warning(loss, name):
    finding = check_ignore_label(loss)

    assert (finding.code, finding.severity) == ("B007", Severity.WARNING)
    assert f"whether `{name}` ignores the padding's label -100 cannot be seen" in finding.message


def test_a_part_of_a_loss_that_padding_enters_is_a_warning():
    finding = check_ignore_label(Composed(nn.CrossEntropyLoss(), nn.MSELoss()))

    assert finding.severity is Severity.WARNING
    assert "the padding enters a part of the loss: `MSELoss` ignores no label" in finding.message


# statistics of a batch, and of a replica


REPLICAS = PortOptions(replicas=2)


def normed(norm):
    return nn.Sequential(nn.Linear(4, 4), norm, nn.BatchNorm1d(4))


def test_the_first_replicas_statistics_are_noted():
    (finding,) = note_statistics_of_one_replica(normed(nn.BatchNorm1d(4)), REPLICAS)

    assert finding.code == "P011"
    assert finding.notes[0].startswith("`1` and 1 more: each of the 2 replicas")


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (nn.BatchNorm1d(4), PortOptions(accumulation=2)),
        (nn.BatchNorm1d(4), REPLICAS.replace(broadcast_buffers=False)),
        (nn.BatchNorm1d(4).eval(), REPLICAS),
        (nn.BatchNorm1d(4, track_running_stats=False), REPLICAS),
        (nn.LayerNorm(4), REPLICAS),
    ],
    ids=["one replica", "meant", "eval mode", "no statistics", "another layer"],
)
def test_nothing_is_noted_where_there_is_nothing_to_say(model, options):
    assert note_statistics_of_one_replica(model, options) == ()


# padding


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(3), nn.BatchNorm2d(3), nn.BatchNorm3d(3), nn.SyncBatchNorm(3)])
def test_batchnorm_in_training_is_noted(layer):
    finding = note_batchnorm(nn.Sequential(nn.Linear(3, 3), layer))

    assert (finding.code, finding.severity) == ("B008", Severity.WARNING)
    assert "`1`" in finding.message


def test_many_batchnorms_are_named_in_part():
    finding = note_batchnorm(nn.Sequential(*(nn.BatchNorm1d(2) for _ in range(5))))

    assert "`0`, `1`, `2` and 2 more" in finding.message


@pytest.mark.parametrize(
    "model", [nn.Sequential(nn.BatchNorm1d(3)).eval(), nn.GroupNorm(1, 3), nn.LayerNorm(3), nn.InstanceNorm2d(3)]
)
def test_layers_that_look_at_one_sample_are_not_noted(model):
    assert note_batchnorm(model) is None


def test_the_warning_is_true_padding_does_move_the_running_mean():
    real = torch.tensor([[1.0], [2.0]])
    with_padding, without = nn.BatchNorm1d(1), nn.BatchNorm1d(1)

    with_padding(torch.cat([real, real[:1]]))
    without(real)

    assert not torch.allclose(with_padding.running_mean, without.running_mean)
