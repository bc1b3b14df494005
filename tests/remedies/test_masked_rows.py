"""Rows that a mask selects are reduced with the mask; what needs their number is refused where they were selected."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import porting


class Selects(nn.Module):
    def __init__(self, compute):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 3)
        self.compute = compute

    def forward(self, x, mask):
        return self.compute(self.layer(x), mask)


def draw():
    drawn = torch.Generator().manual_seed(1)
    return torch.randn(5, 6, 4, generator=drawn), torch.rand(5, 6, generator=drawn) < 0.5


COMPUTED = {
    "class weights": lambda y, mask: F.cross_entropy(
        y[mask], y.argmax(-1)[mask], weight=torch.ones(3, device=y.device) / 2
    ),
    "smoothed": lambda y, mask: F.cross_entropy(y[mask], y.argmax(-1)[mask], label_smoothing=0.1, reduction="sum"),
    "squares": lambda y, mask: nn.MSELoss()(y[mask], y.abs()[mask]),
    "no infinite gradient": lambda y, mask: torch.sqrt(F.relu(y[mask]) + 1e-3).mean() - torch.log(y[mask].exp()).sum(),
    "with numbers": lambda y, mask: ((1 - y[mask]) ** 2 / 3).mean(),
    "a view": lambda y, mask: y[mask].view(-1, 3).square().sum(),
    "columns": lambda y, mask: y[mask, :].square().mean(),
    "of rows": lambda y, mask: F.linear(y[mask], torch.ones(2, 3, device=y.device)).square().mean(),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", COMPUTED)
def test_selected_rows_train_like_plain(name):
    x, mask = draw()
    model = Selects(COMPUTED[name])
    loss = model(x, mask)
    loss.backward()
    expected = model.layer.weight.grad.clone()

    model = Selects(COMPUTED[name])
    options = porting.PortOptions(keep_gradients=True)
    ported = porting.to_ipu(model, options=options, device="sim")
    value = ported(x, mask)

    assert float(value) == pytest.approx(loss.item(), rel=1e-6)
    assert torch.allclose(ported.gradients()["layer.weight"], expected, rtol=1e-5, atol=1e-7)


REFUSED = {
    "their number": lambda y, mask: y.sum() * y[mask].shape[0],
    "their length": lambda y, mask: y.sum() * len(y[mask]),
    "one of them": lambda y, mask: y[mask][0].sum(),
    "joined": lambda y, mask: torch.cat([y[mask], y[mask]]).sum(),
    "two masks": lambda y, mask: (y[mask] - y[~mask]).sum(),
    "a largest one": lambda y, mask: y[mask].max(),
    "sorted": lambda y, mask: y[mask].sort(0).values.sum(),
    "returned": lambda y, mask: (y[mask], y.sum()),
    "labels of all": lambda y, mask: F.mse_loss(y[mask], torch.ones(7, 3, device=y.device)),
}


@pytest.mark.parametrize("name", REFUSED)
# torch says so of different sizes
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_what_needs_the_rows_themselves_is_refused_at_their_place(name):
    x, mask = draw()
    ported = porting.to_ipu(Selects(REFUSED[name]), device="sim")

    with pytest.raises(porting.PortingError) as caught:
        ported(x, mask)

    assert caught.value.code == "C002"
    assert caught.value.finding.place.file.endswith("test_masked_rows.py")


def test_a_mask_that_is_known_selects_as_before():
    known = torch.tensor([True, False, True])

    class Constant(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            return y[:, torch.tensor([0, 2])].sum() + torch.arange(3, device=y.device)[known.to(y.device)].sum()

    x, _mask = draw()
    model = Constant(4, 3)
    expected = model(x).item()

    assert float(porting.to_ipu(model, device="sim")(x)) == pytest.approx(expected, rel=1e-5)
