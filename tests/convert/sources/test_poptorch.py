"""A PopTorch program becomes one of `to_ipu`; what its loop did once more goes, and what has no counterpart is left."""

from __future__ import annotations

import pytest

from tests.convert.conversions import convert_text

PROGRAM = """\
import poptorch
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.loss = nn.CrossEntropyLoss(reduction="none")

    def forward(self, x, labels=None):
        out = self.layer(x)
        if labels is None:
            return out
        return out, poptorch.identity_loss(self.loss(out, labels), reduction="mean")


def main():
    options = poptorch.Options()
    options.deviceIterations(2)
    options.Training.gradientAccumulation(4)
    data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
    loader = poptorch.DataLoader(options, data, batch_size=4, shuffle=True)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = poptorch.trainingModel(model, options=options, optimizer=optimizer)
    validation = poptorch.inferenceModel(model, options=options)
    for x, y in loader:
        output, loss = training(x, y)
        print(loss.mean())
    training.detachFromDevice()
    print(validation(x))


if __name__ == "__main__":
    main()
"""
_MAKING = "poptorch.trainingModel(model, options=options, optimizer=optimizer)"


def test_executors_options_and_loaders_have_counterparts(tmp_path):
    text, made = convert_text(tmp_path, PROGRAM)

    lines = (
        "from porting import PortOptions, to_ipu\nimport torch\n",
        "return out, self.loss(out, labels).mean()",
        "options = PortOptions()\n    options = options.replace(device_iterations=2)\n",
        "options = options.replace(accumulation=4)",
        "DataLoader(data, batch_size=4 * options.micro_batches_per_call, shuffle=True, drop_last=True)",
        "training = to_ipu(model, optimizer=optimizer, options=options)",
        "validation = training.inference()",
        "training.detach()",
    )
    assert [line for line in lines if line not in text] == []
    assert "poptorch" not in text
    assert (made.style, made.left) == ("poptorch", [])


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            _MAKING,
            "poptorch.trainingModel(model, options=options)",
            "to_ipu(model, optimizer=optimizer, options=options)",
        ),
        (_MAKING, "poptorch.trainingModel(model)", "to_ipu(model, optimizer=optimizer)"),
        ("inferenceModel(model, options=options)", "inferenceModel(model)", "= to_ipu(model).inference()"),
        ("torch.optim.SGD", "poptorch.optim.SGD", "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"),
        (
            "options.deviceIterations(2)",
            "options.outputMode(poptorch.OutputMode.All)",
            'options = options.replace(output_mode="all")',
        ),
        (
            "options.deviceIterations(2)",
            "options.randomSeed(3)",
            "torch.manual_seed(3)\n    options = options.replace(seed=3)",
        ),
        ("poptorch.Options()", "poptorch.Options().deviceIterations(3)", "options = PortOptions(device_iterations=3)"),
    ],
)
def test_what_is_said_otherwise_means_the_same(tmp_path, old, new, line):
    text, made = convert_text(tmp_path, PROGRAM.replace(old, new))
    assert line in text
    assert not made.left


def test_the_loop_does_nothing_that_the_call_has_done(tmp_path):
    steps = ("optimizer.zero_grad()", "output, loss = training(x, y)", "loss.backward()", "optimizer.step()\n")
    loop = "\n        ".join(steps)
    text, _made = convert_text(tmp_path, PROGRAM.replace("output, loss = training(x, y)\n", loop))
    assert "for x, y in loader:\n        output, loss = training(x, y)\n        print(loss.mean())" in text


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("options.deviceIterations(2)", "options.useIpuModel(True)", "the option `useIpuModel` has no counterpart"),
        ("out = self.layer(x)", "with poptorch.Block('a'):\n            out = self.layer(x)", "`poptorch.Block`"),
        ("torch.optim.SGD(", "poptorch.optim.SGD(loss_scaling=8, params=", "`loss_scaling` of PopTorch's optimizers"),
        (
            "training.detach",
            "training.setOptimizer(torch.optim.SGD([x], lr=1.0))\n    training.detach",
            "`setOptimizer`",
        ),
        ("shuffle=True", "rebatched_worker_size=2", "`rebatched_worker_size` of PopTorch's loader"),
    ],
)
def test_what_has_no_counterpart_is_left_with_a_guarded_import(tmp_path, old, new, reason):
    text, made = convert_text(tmp_path, PROGRAM.replace(old, new))

    assert [reason in one.reason for one in made.left] == [True]
    assert ("try:\n    import poptorch\n" in text) == ("poptorch." in text)
