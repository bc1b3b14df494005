"""The law of training: a captured module has eager PyTorch's outputs, gradients, statistics and random draws."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(is deprecated|will be deprecated|enable_nested_tensor).*"),
    pytest.mark.filterwarnings("ignore:dropout option adds dropout"),
]

GENERATOR = torch.Generator().manual_seed(0)


def rows(*shape):
    return torch.randn(shape, generator=GENERATOR)


def words(*shape):
    return torch.randint(0, 7, shape, generator=GENERATOR)


def labels(*shape):
    return torch.randint(0, 3, shape, generator=GENERATOR)


class First(nn.Module):
    """The first result of a layer that returns several."""

    def __init__(self, layer, **options):
        super().__init__()
        self.layer, self.options = layer, options

    def forward(self, *args):
        return self.layer(*args, **self.options)[0]


class Scripted(nn.Module):
    """A part that PyTorch compiled on its own."""

    def __init__(self, compiled):
        super().__init__()
        self.linear, self.compiled = nn.Linear(4, 4), compiled

    def forward(self, x):
        return self.compiled(self.linear(x))


class Checkpointed(nn.Module):
    """Layers that are to be computed again in the backward pass."""

    def __init__(self, **options):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
        self.options = options

    def forward(self, x):
        return checkpoint(self.second, self.first(x), **self.options)


class InSegments(nn.Sequential):
    """Checkpoints between the layers of a sequence."""

    def forward(self, x):
        return checkpoint_sequential(self, 2, x, use_reentrant=False)


class Attention(nn.Module):
    """Attention of a sequence to itself."""

    def __init__(self, **options):
        super().__init__()
        self.attention, self.mask = nn.MultiheadAttention(8, 2, batch_first=True, **options), None

    def forward(self, x, *masks):
        return self.attention(x, x, x, *masks)[0]


class Encoder(nn.Module):
    """A transformer's encoder with the masks it is given."""

    def __init__(self, **options):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x, mask=None, padding=None):
        return self.encoder(x, mask=mask, src_key_padding_mask=padding)


class CausalEncoder(Encoder):
    """Makes its mask in `forward`."""

    def forward(self, x):
        return self.encoder(x, mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device))


class ClampedWeights(nn.Module):
    """Writes to its own weight, outside of any gradient."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        with torch.no_grad():
            self.linear.weight.clamp_(-0.1, 0.1)
        return self.linear(x)


class FunctionalNorms(nn.Module):
    """BatchNorm and InstanceNorm as functions, with and without statistics of their own."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("variance", torch.ones(4))

    def forward(self, x):
        x = F.batch_norm(x * self.scale, self.mean, self.variance, weight=self.scale, training=True)
        x = x + F.batch_norm(x, None, None, training=True)
        return x + F.instance_norm(x[..., None].expand(-1, -1, 3))[..., 0]


class Hooked(nn.Module):
    """Hooks change what goes in and what comes out."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.linear.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
        self.linear.register_forward_hook(lambda module, args, output: output * 2)

    def forward(self, x):
        return self.linear(x)


class Keeping(nn.Module):
    """Keeps an intermediate value on itself, as many models do to be looked at."""

    def __init__(self):
        super().__init__()
        self.linear, self.hidden = nn.Linear(4, 4), None

    def forward(self, x):
        self.hidden = self.linear(x)
        return self.hidden.tanh()


def convolutions(*layers):
    return lambda: nn.Sequential(nn.Conv2d(1, 4, 3), *(layer() for layer in layers), nn.Flatten(), nn.LazyLinear(3))


def after_linear(layer):
    return lambda: nn.Sequential(nn.Linear(4, 4), layer())


causal = nn.Transformer.generate_square_subsequent_mask(5)
padding = torch.tensor([[False, False, False, True, True], [False] * 5])
x, image, sequence = rows(5, 4), rows(2, 1, 8, 8), rows(2, 5, 8)

REGRESSIONS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), [x, rows(5, 3)]),
    "lazy mlp": (lambda: nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.LazyLinear(3)), [x, rows(5, 3)]),
    "batch norm": (after_linear(lambda: nn.BatchNorm1d(4)), [x, rows(5, 4)]),
    "batch norm without statistics": (after_linear(lambda: nn.BatchNorm1d(4, track_running_stats=False)), [x, x]),
    "batch norm in eval mode": (after_linear(lambda: nn.BatchNorm1d(4).eval()), [x, rows(5, 4)]),
    "layer norm": (after_linear(lambda: nn.LayerNorm(4)), [x, rows(5, 4)]),
    "rms norm": (after_linear(lambda: nn.RMSNorm(4)), [x, rows(5, 4)]),
    "group norm": (after_linear(lambda: nn.GroupNorm(2, 4)), [x, rows(5, 4)]),
    "functional norms": (FunctionalNorms, [x, rows(5, 4)]),
    "dropout": (after_linear(lambda: nn.Dropout(0.5)), [x, rows(5, 4)]),
    "alpha dropout": (after_linear(lambda: nn.AlphaDropout(0.5)), [x, rows(5, 4)]),
    "channel dropout": (lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.Dropout2d(0.5)), [image, rows(2, 4, 6, 6)]),
    "randomised leaky relu": (after_linear(nn.RReLU), [x, rows(5, 4)]),
    "prelu": (after_linear(nn.PReLU), [x, rows(5, 4)]),
    "conv1d": (lambda: nn.Conv1d(4, 2, 3, padding="same"), [rows(2, 4, 5), rows(2, 2, 5)]),
    "conv3d": (lambda: nn.Conv3d(1, 2, 2), [rows(1, 1, 3, 3, 3), rows(1, 2, 2, 2, 2)]),
    "transposed convolution": (lambda: nn.ConvTranspose2d(1, 2, 2, stride=2), [image, rows(2, 2, 16, 16)]),
    "channels last": (
        lambda: nn.Conv2d(4, 4, 3).to(memory_format=torch.channels_last),
        [rows(2, 4, 5, 5).contiguous(memory_format=torch.channels_last), rows(2, 4, 3, 3)],
    ),
    "upsampling": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.Upsample(scale_factor=2, mode="bilinear")),
        [image, rows(2, 2, 12, 12)],
    ),
    "bilinear": (lambda: nn.Bilinear(4, 4, 3), [x, rows(5, 4), rows(5, 3)]),
    "embedding": (lambda: nn.Embedding(7, 3, padding_idx=0), [words(2, 3), rows(2, 3, 3)]),
    "embedding with sparse gradients": (lambda: nn.Embedding(7, 3, sparse=True), [words(2, 3), rows(2, 3, 3)]),
    "embedding bag": (lambda: nn.EmbeddingBag(7, 3), [words(2, 3), rows(2, 3)]),
    "embedding bag of sums": (lambda: nn.EmbeddingBag(7, 3, mode="sum"), [words(6), torch.tensor([0, 2]), rows(2, 3)]),
    "embedding bag of maxima": (lambda: nn.EmbeddingBag(7, 3, mode="max"), [words(2, 3), rows(2, 3)]),
    "rnn": (lambda: First(nn.RNN(3, 4)), [rows(5, 2, 3), rows(5, 2, 4)]),
    "lstm": (lambda: First(nn.LSTM(3, 4, num_layers=2, bidirectional=True)), [rows(5, 2, 3), rows(5, 2, 8)]),
    "lstm with dropout": (lambda: First(nn.LSTM(3, 4, 2, dropout=0.5)), [rows(5, 2, 3), rows(5, 2, 4)]),
    "lstm with a start": (
        lambda: First(nn.LSTM(3, 4, batch_first=True)),
        [rows(2, 5, 3), (rows(1, 2, 4), rows(1, 2, 4)), rows(2, 5, 4)],
    ),
    "gru": (lambda: First(nn.GRU(3, 4, num_layers=2, dropout=0.5)), [rows(5, 2, 3), rows(5, 2, 4)]),
    "lstm cell": (lambda: First(nn.LSTMCell(3, 4)), [rows(2, 3), rows(2, 4)]),
    "attention": (lambda: Attention(dropout=0.2), [sequence, rows(2, 5, 8)]),
    "attention with padding": (Attention, [sequence, padding, rows(2, 5, 8)]),
    "attention without weights": (
        lambda: First(nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True), need_weights=False),
        [sequence, sequence, sequence, rows(2, 5, 8)],
    ),
    "encoder": (Encoder, [sequence, rows(2, 5, 8)]),
    "encoder with a mask": (lambda: Encoder(dropout=0.0), [sequence, causal, rows(2, 5, 8)]),
    "encoder with padding": (lambda: Encoder(dropout=0.0), [sequence, causal, padding.float(), rows(2, 5, 8)]),
    "encoder that makes its mask": (CausalEncoder, [sequence, rows(2, 5, 8)]),
    "encoder, norm first": (lambda: Encoder(norm_first=True, activation="gelu"), [sequence, rows(2, 5, 8)]),
    "transformer": (
        lambda: nn.Transformer(8, 2, 1, 1, 16, batch_first=True),
        [sequence, rows(2, 3, 8), rows(2, 3, 8)],
    ),
    "weight norm": (lambda: parametrizations.weight_norm(nn.Linear(4, 4)), [x, rows(5, 4)]),
    "weight norm by hooks": (lambda: torch.nn.utils.weight_norm(nn.Linear(4, 4)), [x, rows(5, 4)]),
    "spectral norm": (lambda: parametrizations.spectral_norm(nn.Linear(4, 4)), [x, rows(5, 4)]),
    "spectral norm by hooks": (lambda: torch.nn.utils.spectral_norm(nn.Linear(4, 4)), [x, rows(5, 4)]),
    "orthogonal weights": (lambda: parametrizations.orthogonal(nn.Linear(4, 4)), [x, rows(5, 4)]),
    "pruned weights": (lambda: prune.l1_unstructured(nn.Linear(4, 4), "weight", 3), [x, rows(5, 4)]),
    "scripted part": (lambda: Scripted(torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))), [x, x]),
    "traced part": (lambda: Scripted(torch.jit.trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), x)), [x, x]),
    "scripted model": (lambda: torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU())), [x, rows(5, 4)]),
    "checkpoint": (lambda: Checkpointed(use_reentrant=False), [x, rows(5, 4)]),
    "checkpoint with re-entry": (lambda: Checkpointed(use_reentrant=True), [x, rows(5, 4)]),
    "checkpoints in a sequence": (lambda: InSegments(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)), [x, rows(5, 4)]),
    "clamped weights": (ClampedWeights, [x, rows(5, 4)]),
    "hooks": (Hooked, [x, rows(5, 4)]),
    "a value that is kept": (Keeping, [x, rows(5, 4)]),
}

CLASSIFIERS = {
    "cnn": convolutions(lambda: nn.BatchNorm2d(4), nn.ReLU, lambda: nn.MaxPool2d(2), lambda: nn.Dropout(0.3)),
    "average pooling": convolutions(nn.GELU, lambda: nn.AvgPool2d(2)),
    "adaptive pooling": convolutions(lambda: nn.AdaptiveAvgPool2d(2), lambda: nn.AdaptiveMaxPool2d(1)),
    "instance norm": convolutions(lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True)),
    "local response norm": convolutions(lambda: nn.LocalResponseNorm(2), nn.SiLU),
    "pixel shuffle": convolutions(lambda: nn.PixelShuffle(2), nn.Hardswish),
}


@pytest.mark.sampled(15)
@pytest.mark.parametrize(("make", "args"), REGRESSIONS.values(), ids=REGRESSIONS.keys())
def test_a_module_trains_like_eager(assert_trains_like_eager, make, args):
    assert_trains_like_eager(make, *args, loss=F.mse_loss, tolerance=1e-5)


@pytest.mark.parametrize("make", CLASSIFIERS.values(), ids=CLASSIFIERS.keys())
def test_an_image_classifier_trains_like_eager(assert_trains_like_eager, make):
    assert_trains_like_eager(make, image, labels(2), loss=F.cross_entropy)
