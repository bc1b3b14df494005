"""A Chainer program is left as it is, with what to write in the place of each of its lines."""

from __future__ import annotations

import pytest

from tests.convert.conversions import convert_text

PROGRAM = """\
import chainer
import chainer.functions as F
import chainer.links as L
from chainer import optimizers, serializers


class Net(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.layer = L.Linear(None, 10)
            self.norm = L.BatchNormalization(10)

    def __call__(self, x):
        return F.max_pooling_2d(self.norm(self.layer(x)), 2)


def lossfun(x, t):
    return F.softmax_cross_entropy(model(x), t)


model = Net()
optimizer = optimizers.MomentumSGD(lr=0.1)
optimizer.setup(model)
for x, t in batches:
    optimizer.update(lossfun, x, t)
serializers.save_npz("model.npz", model)
"""


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("class Net(chainer.Chain):", "inherit from `nn.Module`"),
        ("self.norm = L.BatchNormalization(10)", "eps=2e-5"),
        ("return F.softmax_cross_entropy(model(x), t)", "`F.cross_entropy(output, label)`"),
        ("optimizer = optimizers.MomentumSGD(lr=0.1)", "momentum=0.9"),
        ("optimizer.update(lossfun, x, t)", "a port's call is the step"),
        ('serializers.save_npz("model.npz", model)', "`torch.save(model.state_dict(), file)`"),
    ],
)
def test_each_line_is_told_with_what_takes_its_place(tmp_path, line, advice):
    text, made = convert_text(tmp_path, PROGRAM)

    number = next(n for n, own in enumerate(PROGRAM.split("\n"), 1) if own.strip() == line)
    assert any(advice in one.help for one in made.left if one.line == number)
    assert (text, made.style) == ("", "chainer")
