"""The law of training for functions: losses, operators with integer indices, writes, and draws."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import distributions, nn

GENERATOR = torch.Generator().manual_seed(0)


def rows(*shape):
    return torch.randn(shape, generator=GENERATOR)


def numbers(end, *shape):
    return torch.randint(0, end, shape, generator=GENERATOR)


class Body(nn.Module):
    """`forward` is `function(weight, *inputs)`; the parameter has shape (5, 4)."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.randn(5, 4))

    def forward(self, *inputs):
        return self.function(self.weight, *inputs)


def signs():
    return rows(5, 4).sign()


x, classes = rows(5, 4), numbers(4, 5)
one_sequence = [torch.tensor([[1, 2, 3]]), torch.tensor([5]), torch.tensor([3])]

LOSSES = {
    "cross_entropy": (F.cross_entropy, [classes]),
    "cross_entropy with weights": (
        lambda w, y, weights: F.cross_entropy(w, y, weight=weights, label_smoothing=0.1, ignore_index=1),
        [classes, torch.tensor([0.1, 0.2, 0.3, 0.4])],
    ),
    "cross_entropy of probabilities": (F.cross_entropy, [x.softmax(1)]),
    "cross_entropy of images": (lambda w, y: F.cross_entropy(w.reshape(1, 4, 5, 1), y), [numbers(4, 1, 5, 1)]),
    "sum of cross entropies": (lambda w, y: F.cross_entropy(w, y, reduction="sum"), [classes]),
    "cross entropy of each row": (lambda w, y: F.cross_entropy(w, y, reduction="none"), [classes]),
    "nll_loss": (lambda w, y: F.nll_loss(w.log_softmax(1), y), [classes]),
    "nll_loss of images": (lambda w, y: F.nll_loss(w.log_softmax(1).reshape(1, 4, 5, 1), y), [numbers(4, 1, 5, 1)]),
    "ctc_loss": (lambda w, *y: F.ctc_loss(w.reshape(5, 1, 4).log_softmax(2), *y), one_sequence),
    "ctc_loss of known lengths": (
        lambda w, y: F.ctc_loss(w.reshape(5, 1, 4).log_softmax(2), y, (5,), (3,)),
        one_sequence[:1],
    ),
    "kl_div": (lambda w, y: F.kl_div(w.log_softmax(1), y, reduction="sum"), [x.softmax(1)]),
    "kl_div of logarithms": (lambda w, y: F.kl_div(w.log_softmax(1), y, reduction="none", log_target=True), [x]),
    "binary_cross_entropy": (lambda w, y: F.binary_cross_entropy(w.sigmoid(), y), [x.sigmoid()]),
    "binary_cross_entropy_with_logits": (
        lambda w, y, p: F.binary_cross_entropy_with_logits(w, y, pos_weight=p),
        [x.sigmoid(), torch.full((4,), 2.0)],
    ),
    "l1_loss": (F.l1_loss, [x]),
    "mse_loss": (F.mse_loss, [x]),
    "smooth_l1_loss": (lambda w, y: F.smooth_l1_loss(w, y, beta=0.5), [x]),
    "poisson_nll_loss": (F.poisson_nll_loss, [x.abs()]),
    "soft_margin_loss": (F.soft_margin_loss, [signs()]),
    "multilabel_soft_margin_loss": (F.multilabel_soft_margin_loss, [(x > 0).float()]),
    "hinge_embedding_loss": (F.hinge_embedding_loss, [signs()]),
    "cosine_embedding_loss": (F.cosine_embedding_loss, [x, torch.tensor([1, -1, 1, 1, -1])]),
    "margin_ranking_loss": (
        lambda w, other, y: F.margin_ranking_loss(w[:, 0], other[:, 0], y),
        [x, torch.tensor([1, -1, 1, 1, -1])],
    ),
    "triplet_margin_loss": (F.triplet_margin_loss, [x, rows(5, 4)]),
    "sum of losses": (lambda w, y: F.mse_loss(F.l1_loss(w, y) + F.mse_loss(w, y), w.new_zeros(())), [x]),
}

# Functions whose result is compared with zeros.
INDEXED = {
    "gather": (lambda w, i: w.gather(1, i), [numbers(4, 5, 2)]),
    "scatter": (lambda w, i: w.scatter(1, i, 2.0), [numbers(4, 5, 1)]),
    "scatter_add": (lambda w, i: torch.zeros_like(w).scatter_add(1, i, w), [numbers(4, 5, 4)]),
    "scatter_reduce": (lambda w, i: torch.zeros_like(w).scatter_reduce(1, i, w, reduce="amax"), [numbers(4, 5, 4)]),
    "index_select": (lambda w, i: w.index_select(0, i), [numbers(5, 3)]),
    "index_add": (lambda w, i: w.index_add(0, i, torch.ones_like(w[:3])), [numbers(5, 3)]),
    "index_copy": (lambda w, i: w.index_copy(0, i, torch.ones_like(w[:3])), [torch.tensor([0, 2, 4])]),
    "index_fill": (lambda w, i: w.index_fill(0, i, 2.0), [torch.tensor([0, 2, 4])]),
    "take": (lambda w, i: w.take(i), [numbers(20, 3)]),
    "take_along_dim": (lambda w, i: w.take_along_dim(i, 1), [numbers(4, 5, 4)]),
    "put": (lambda w, i: w.clone().put_(i, torch.ones_like(w[0, :3])), [torch.tensor([1, 5, 7])]),
    "rows by index": (lambda w, i: w[i, i], [numbers(4, 3)]),
    "columns by index": (lambda w, i: w[:, i], [numbers(4, 3)]),
    "rows by mask": (lambda w, m: torch.where(m, w, 0.0), [x > 0]),
    "one_hot": (lambda w, i: F.one_hot(i, 4) * w, [numbers(4, 5)]),
    "embedding": (lambda w, i: F.embedding(i, w), [numbers(5, 3)]),
    "masked_fill": (lambda w, m: w.masked_fill(m, 0.5), [x > 0]),
    "masked_scatter": (lambda w, m: w.masked_scatter(m, torch.ones_like(w)), [x > 0]),
    "topk": (lambda w: w.topk(2, 1).values, []),
    "sort": (lambda w: w.sort(1, descending=True).values, []),
    "argsort": (lambda w: w.take_along_dim(w.argsort(1), 1), []),
    "max": (lambda w: w.max(1).values * w.argmax(), []),
    "median": (lambda w: w.median(1).values, []),
    "cummax": (lambda w: w.cummax(1).values, []),
    "max_unpool": (lambda w: F.max_unpool2d(*F.max_pool2d(w[None, :4], 2, return_indices=True), 2), []),
    "integer arithmetic": (
        lambda w, i: w * (i // 2)[:, None] + (i / 2)[:, None] + (i % 3)[:, None] ** 2,
        [numbers(9, 5)],
    ),
    "accuracy": (lambda w, i: w.mean() * (w.argmax(1) == i).float().mean(), [classes]),
}

WRITES = {
    "slices": lambda w: assigned(w * 2, (slice(1, 3), slice(None, None, 2)), 3.0),
    "a mask": lambda w: assigned(w * 2, w > 0, 3.0),
    "rows of a mask": lambda w: assigned(w * 2, w[:, 0] > 0, w[0]),
    "columns": lambda w: assigned(w * 2, (slice(None), 1), w[:, 0]),
    "arithmetic": lambda w: (w * 2).add_(w).mul_(w).clamp_(min=-1.0),
    "a view": lambda w: viewed(w * 2),
    "out": lambda w: torch.add(w, 1).sub_(w.detach()),
}

VALUES = {
    "cumsum": lambda w: w.cumsum(1),
    "einsum": lambda w: torch.einsum("ij,kj->ik", w, w),
    "interpolate": lambda w: F.interpolate(w[None, None], size=(8, 8), mode="bicubic", antialias=True),
    "pad": lambda w: F.pad(w[None], (1, 2), mode="reflect"),
    "unfold": lambda w: F.unfold(w[None, None], 2),
    "grid_sample": lambda w: F.grid_sample(w[None, None], torch.tanh(w[:3, :2])[None, None]),
    "norms": lambda w: w.norm() + torch.linalg.vector_norm(w, 1) + torch.linalg.matrix_norm(w),
    "norms of rows": lambda w: w.norm(dim=1) + torch.norm(w, 1, 1) + w.norm(p=None, dim=1) + w.norm("nuc"),
    "variance": lambda w: torch.var_mean(w, 1)[0] + w.std(),
    "logsumexp": lambda w: w.logsumexp(1),
    "cdist": lambda w: torch.cdist(w, w.flip(0) + 1),
    "solve": lambda w: torch.linalg.solve(w[:4] @ w[:4].T + 3, w[:4]),
    "attention": lambda w: F.scaled_dot_product_attention(w[None, None], w[None, None], w[None, None], is_causal=True),
    "straight-through gradient": lambda w: w + (w.round() - w).detach(),
    "no_grad": lambda w: w * frozen(w),
    "data": lambda w: w * w.data,
    "vmap": lambda w: torch.func.vmap(lambda row: row.softmax(0))(w),
    "gradients of each row": lambda w: torch.func.vmap(torch.func.grad(lambda row: (row**3).sum()))(w),
    "a step of gradient descent": lambda w: w - 0.1 * torch.func.grad(lambda v: F.mse_loss(v, v.detach() * 2))(w),
}

DRAWS = {
    "rand": lambda w: w * torch.rand(5, 4) + torch.randn(5, 4) + torch.randint(3, (5, 4)),
    "rand_like": lambda w: w * torch.rand_like(w) + torch.randn_like(w),
    "in place": lambda w: w + torch.empty_like(w).normal_() + torch.empty_like(w).uniform_(1, 2).bernoulli_(0.5),
    "normal": lambda w: torch.normal(w, 1.0) + torch.normal(0.0, 1.0, (5, 4)),
    "bernoulli": lambda w: w * torch.bernoulli(w.sigmoid()),
    "multinomial": lambda w: w.take_along_dim(torch.multinomial(w.softmax(1), 2), 1),
    "dropout": lambda w: F.dropout(w) + F.alpha_dropout(w, 0.5, training=True),
    "channel dropout": lambda w: F.dropout1d(w[None]) + F.feature_alpha_dropout(w[None], training=True),
    "gumbel_softmax": lambda w: F.gumbel_softmax(w, hard=True),
    "normal distribution": lambda w: distributions.Normal(w, w.exp()).rsample(),
    "laplace distribution": lambda w: distributions.Laplace(w, w.exp()).rsample(),
    "gamma distribution": lambda w: distributions.Gamma(w.exp(), w.exp()).rsample(),
    "categorical distribution": lambda w: w * distributions.Categorical(logits=w).sample()[:, None],
    "divergence": lambda w: distributions.kl_divergence(
        distributions.Normal(w, w.exp()), distributions.Normal(0.0, 1.0)
    ),
}


def assigned(tensor, index, value):
    tensor[index] = value
    return tensor


def viewed(tensor):
    tensor.view(-1)[3:9].mul_(3.0)
    return tensor


def frozen(tensor):
    with torch.no_grad():
        return tensor.exp() * 2


def against_zero(function):
    """Return a function whose last result is a loss."""

    def compared(weight, *inputs):
        value = function(weight, *inputs)
        return value, F.mse_loss(value, torch.zeros_like(value))

    return compared


@pytest.mark.parametrize(("function", "inputs"), LOSSES.values(), ids=LOSSES.keys())
def test_a_loss_trains_like_eager(assert_trains_like_eager, function, inputs):
    assert_trains_like_eager(lambda: Body(function), *inputs)


@pytest.mark.parametrize(("function", "inputs"), INDEXED.values(), ids=INDEXED.keys())
def test_an_indexed_function_trains_like_eager(assert_trains_like_eager, function, inputs):
    assert_trains_like_eager(lambda: Body(against_zero(function)), *inputs)


@pytest.mark.parametrize("function", WRITES.values(), ids=WRITES.keys())
def test_writing_to_a_temporary_trains_like_eager(assert_trains_like_eager, function):
    assert_trains_like_eager(lambda: Body(against_zero(function)))


@pytest.mark.filterwarnings("ignore:Default grid_sample:UserWarning")
@pytest.mark.parametrize("function", VALUES.values(), ids=VALUES.keys())
def test_a_function_trains_like_eager(assert_trains_like_eager, function):
    assert_trains_like_eager(lambda: Body(against_zero(function)), tolerance=1e-5)


@pytest.mark.parametrize("function", DRAWS.values(), ids=DRAWS.keys())
def test_a_draw_trains_like_eager(assert_trains_like_eager, function):
    assert_trains_like_eager(lambda: Body(against_zero(function)))


def test_a_loss_that_is_added_up_in_place_trains_on_the_sum(assert_trains_like_eager):
    def total(weight, target):
        losses = torch.zeros(3)
        for power in range(3):
            losses[power] = F.mse_loss(weight**power, target)
        return F.l1_loss(losses.sum(), target.new_zeros(()))

    assert_trains_like_eager(lambda: Body(total), x)


def test_a_written_input_trains_like_eager(assert_trains_like_eager):
    def overwrite(weight, inputs):
        inputs[1:3] += 1
        return weight * inputs, F.mse_loss(weight, inputs)

    assert_trains_like_eager(lambda: Body(overwrite), x)
