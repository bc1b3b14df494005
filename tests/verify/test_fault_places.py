"""Each planted fault is not only found: its place is named, and its cause."""

from __future__ import annotations

import pytest

from tests.verify.planted_faults import FAULTS, prove

PLACES = {
    "the loss is a sum": ("loss", "cross_entropy", ("16 times", "sum and mean")),
    "label smoothing": ("loss", "cross_entropy", ("label_smoothing=0.01",)),
    "accumulated by a sum": ("backward", "Sequential", ("4 times", "reduction='sum'")),
    "a bias's gradient is lost": ("backward", "hidden", ("hidden.bias", "detach")),
    "a gradient is scaled": ("backward", "hidden", ("1.01 times", "detach")),
    "two labels are swapped": ("data", "", ("tensor 1",)),
    "labels are transformed": ("loss", "cross_entropy", ("label_transform",)),
    "samples and labels in other orders": ("data", "", ("tensor 0",)),
    "other momentum": ("update", "Net", ("momentum differs", "0.8")),
    "no momentum": ("update", "Net", ("momentum differs",)),
    "Nesterov's momentum": ("update", "Net", ("Nesterov",)),
    "dampening": ("update", "Net", ("dampening",)),
    "other rate": ("update", "", ("1.002 times",)),
    "no weight decay": ("update", "Net", ("weight decay differs",)),
    "weight decay of biases": ("update", "conv", ("biases and weights of norms alone",)),
    "Adam's epsilon": ("update", "Net", ("the optimizer's `eps`",)),
    "Adam's first beta": ("update", "Net", ("betas[0]",)),
    "Adam's second beta": ("update", "Net", ("betas[1]",)),
    "Adam for AdamW": ("update", "Net", ("other kinds",)),
    "the schedule is ignored": ("schedule", "", ("ignored",)),
    "the schedule is shifted": ("schedule", "", ("one step ahead",)),
    "the schedule has another factor": ("schedule", "", ("multiplies it by 0.4",)),
    "clipping is forgotten": ("update", "Net", ("clipped on one side only",)),
    "clipping is another": ("update", "Net", ("another norm",)),
    "BatchNorm's epsilon": ("forward", "norm", ("BatchNorm2d", "`eps`")),
    "BatchNorm's momentum": ("buffer", "norm", ("`momentum` is 0.1",)),
    "BatchNorm in evaluation": ("forward", "norm", ("eval mode",)),
    "LayerNorm's epsilon": ("forward", "layer_norm", ("LayerNorm", "`eps`")),
    "a frozen layer": ("backward", "hidden", ("frozen",)),
    "a stale buffer": ("buffer", "Net", ("`scale`", "before the first step")),
    "a layer that is left out": ("forward", "layer_norm", ("Identity",)),
    "a bias that is not used": ("forward", "last", ("own.weight",)),
    "weights are untied": ("forward", "last", ("tied to `embedding.weight`",)),
    "other weights": ("forward", "last", ("before the first step",)),
    "another rate of Dropout": ("forward", "dropout", ("`p` is 0.3",)),
    "no Dropout": ("forward", "dropout", ("`p` is 0.3",)),
    "a replica's gradients are lost": ("loss", "cross_entropy", ("// 2",)),
    "statistics change between calls": ("buffer", "norm", ("something beside the step",)),
    "updates are stretched": ("update", "Net", ("2 times plain PyTorch's, as another learning rate would make it",)),
    "one update is stretched": ("update", "Net", ("2 times plain PyTorch's in this step",)),
    "other statistics are saved": ("evaluation", "", ("running statistics are saved or loaded wrongly",)),
    "a count is not kept": ("buffer", "Counting", ("`seen`", "no variables of 64-bit integers")),
    "evaluation goes on training": ("evaluation", "norm", ("writes `norm.running_mean`",)),
    "the last samples of an epoch are dropped": ("data", "", ("12 samples dropped",)),
}


# a faulty port may be warned of as well
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.slow
@pytest.mark.parametrize("name", PLACES)
def test_a_planted_fault_is_located(name):
    phase, module, words = PLACES[name]

    found = prove(FAULTS[name]).location

    assert (found.phase, found.module) == (phase, module)
    assert all(word in found.cause for word in words), found.cause
