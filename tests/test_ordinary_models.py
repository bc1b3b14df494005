"""Ordinary models, ported in at most three changed lines, train as in a plain loop of PyTorch.

B = samples, C = classes, T = time, E = embedding, H = hidden, F = features.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting import to_ipu
from porting.adapters import LossTerm

NUM_STEPS = 20

# one of the models counts its calls in a buffer of integers, which is a constant on the device
pytestmark = pytest.mark.filterwarnings(r"ignore:warning\[C019\]")


@dataclass(frozen=True)
class Case:
    """A model with the batches it learns from; the last tensor of a batch is the label unless `port` says otherwise.

    `eager_loss(output, batch)` is the loss in the plain loop where it is not `loss(output, label)`; `port` holds
    further arguments of `to_ipu`.
    """

    model: Callable[[], nn.Module]
    loss: Any
    batch: Callable[[torch.Generator], Tuple[torch.Tensor, ...]]
    optimizer: Callable[[Any], torch.optim.Optimizer] = partial(torch.optim.SGD, lr=0.05)
    eager_loss: Optional[Callable[[Any, Tuple[torch.Tensor, ...]], torch.Tensor]] = None
    num_inputs: int = 1
    port: Mapping[str, Any] = field(default_factory=dict)

    def start(self) -> Tuple[nn.Module, torch.optim.Optimizer, List[Tuple[torch.Tensor, ...]]]:
        """Make model, optimizer and batches: the same in each loop, with the same random numbers to come."""
        torch.manual_seed(1)
        generator = torch.Generator().manual_seed(2)
        batches = [self.batch(generator) for _ in range(NUM_STEPS)]
        model = self.model()
        return model, self.optimizer(model.parameters()), batches


def train_eagerly(case: Case) -> Tuple[List[float], nn.Module]:
    model, optimizer, batches = case.start()
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(case, model(*inputs_of(case, batch)), batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model


def train_ported(case: Case) -> Tuple[List[float], nn.Module]:
    model, optimizer, batches = case.start()
    losses = []
    ported = to_ipu(model, case.loss, optimizer=optimizer, device="sim", **case.port)
    for batch in batches:
        loss = ported.loss_of(ported(*batch))
        losses.append(loss.item())
    return losses, ported


def inputs_of(case: Case, batch: Tuple[torch.Tensor, ...]) -> Tuple[torch.Tensor, ...]:
    return batch[: case.num_inputs]


def loss_of(case: Case, output: Any, batch: Tuple[torch.Tensor, ...]) -> torch.Tensor:
    if case.eager_loss is not None:
        return case.eager_loss(output, batch)
    return case.loss(output, batch[-1])


def floats(*shape: int) -> Callable[[torch.Generator], torch.Tensor]:
    return lambda generator: torch.randn(*shape, generator=generator)


def classes(high: int, *shape: int) -> Callable[[torch.Generator], torch.Tensor]:
    return lambda generator: torch.randint(high, shape, generator=generator)


def bits(*shape: int) -> Callable[[torch.Generator], torch.Tensor]:
    return lambda generator: torch.randint(2, shape, generator=generator).float()


def always(tensor: torch.Tensor) -> Callable[[torch.Generator], torch.Tensor]:
    return lambda generator: tensor.clone()


def batch_of(*parts: Callable[[torch.Generator], torch.Tensor]) -> Callable[..., Tuple[torch.Tensor, ...]]:
    return lambda generator: tuple(part(generator) for part in parts)


# -- models -----------------------------------------------------------------------------------------------------------


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))


def lazy_mlp() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(16), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(4))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(8, 4),
    )


class ResidualBlock(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(after)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(after)
        self.shortcut = nn.Identity() if before == after else nn.Conv2d(before, after, 1, stride=stride)

    def forward(self, x):
        out = F.relu(self.first_norm(self.first(x)))
        out = self.second_norm(self.second(out))
        return F.relu(out + self.shortcut(x))


def resnet() -> nn.Module:
    blocks = [ResidualBlock(3, 4, 1), ResidualBlock(4, 4, 1), ResidualBlock(4, 8, 2)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


def separable_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.Conv2d(8, 12, 1),
        nn.GroupNorm(3, 12),
        nn.Hardswish(),
        nn.Conv2d(12, 12, 3, padding=2, dilation=2, groups=12, bias=False),
        nn.InstanceNorm2d(12, affine=True),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.LayerNorm(12),
        nn.Linear(12, 4),
    )


class LSTMClassifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8, padding_idx=0)
        self.forwards = nn.LSTM(8, 8, batch_first=True)
        self.backwards = nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, words_BT):
        vectors_BTH = self.embedding(words_BT)
        states_BTH, _ = self.forwards(vectors_BTH)
        reversed_BTH, _ = self.backwards(vectors_BTH.flip(1))
        return self.head(torch.cat([states_BTH[:, -1], reversed_BTH[:, -1]], 1))


class GRUTagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.gru = nn.GRU(8, 12, batch_first=True)
        self.head = nn.Linear(12, 5)

    def forward(self, words_BT):
        return self.head(self.gru(self.embedding(words_BT))[0]).transpose(1, 2)


class TransformerClassifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.position = nn.Parameter(torch.zeros(1, 6, 8))
        layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 4)

    def forward(self, words_BT):
        padding_BT = words_BT == 0
        encoded_BTE = self.encoder(self.embedding(words_BT) + self.position, src_key_padding_mask=padding_BT)
        return self.head(encoded_BTE.mean(1))


class GPT(nn.Module):
    """A causal language model whose last layer is tied to the embedding."""

    def __init__(self, num_words: int = 13, num_steps: int = 6, width: int = 8) -> None:
        super().__init__()
        self.words = nn.Embedding(num_words, width)
        self.positions = nn.Embedding(num_steps, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))
        self.head = nn.Linear(width, num_words, bias=False)
        self.head.weight = self.words.weight
        self.register_buffer("mask", torch.tril(torch.ones(num_steps, num_steps)).view(1, 1, num_steps, num_steps))

    def forward(self, words_BT):
        B, T = words_BT.shape
        positions = torch.arange(T, device=words_BT.device)
        x = self.words(words_BT) + self.positions(positions)
        x = x + self.attend(self.norms[0](x))
        x = x + self.mlp(self.norms[1](x))
        return self.head(self.norms[2](x))

    def attend(self, x):
        B, T, E = x.shape
        query, key, value = (part.view(B, T, 2, E // 2).transpose(1, 2) for part in self.qkv(x).split(E, dim=2))
        scores = query @ key.transpose(-2, -1) / math.sqrt(E // 2)
        scores = scores.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
        return self.projection((scores.softmax(-1) @ value).transpose(1, 2).reshape(B, T, E))


def next_word_loss(logits_BTC, words_BT):
    return F.cross_entropy(logits_BTC.flatten(0, 1), words_BT.flatten())


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(8, 16)
        self.mean = nn.Linear(16, 3)
        self.log_variance = nn.Linear(16, 3)
        self.decoder = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, x):
        hidden = F.relu(self.encoder(x))
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        sample = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance) if self.training else mean
        return self.decoder(sample), mean, log_variance


def vae_loss(output, target):
    decoded, mean, log_variance = output
    reconstruction = F.mse_loss(decoded, target, reduction="sum")
    divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
    return (reconstruction + divergence) / target.shape[0]


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.bottom = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.out = nn.Sequential(nn.Conv2d(8, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1))

    def forward(self, x):
        skip = self.down(x)
        bottom = self.bottom(F.max_pool2d(skip, 2))
        upsampled = F.interpolate(bottom, scale_factor=2, mode="bilinear", align_corners=False)
        return self.out(torch.cat([skip, self.up(bottom) + upsampled[:, :4]], dim=1))


def autoencoder() -> nn.Module:
    return nn.Sequential(OrderedDict(encode=nn.Linear(8, 3), act=nn.SiLU(), decode=nn.Linear(3, 8)))


class TiedAutoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 8) * 0.3)
        self.bias = nn.Parameter(torch.zeros(8))

    def forward(self, x):
        return F.linear(torch.tanh(F.linear(x, self.weight)), self.weight.t(), self.bias)


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Linear(6, 8)
        self.text = nn.EmbeddingBag(11, 8, mode="mean")
        self.head = nn.Bilinear(8, 8, 4)

    def forward(self, image_BF, words_BT):
        return self.head(torch.relu(self.image(image_BF)), self.text(words_BT))


Heads = namedtuple("Heads", ["kind", "size"])


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 12), nn.ELU())
        self.kind, self.size = nn.Linear(12, 4), nn.Linear(12, 1)

    def forward(self, x):
        hidden = self.body(x)
        return Heads(self.kind(hidden), self.size(hidden).squeeze(1))


class Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 4))

    def forward(self, anchor, positive, negative):
        return self.body(anchor), self.body(positive), self.body(negative)


def triplet_loss(embedded, margin):
    return F.triplet_margin_loss(*embedded, margin=1.0) * margin.mean()


class Contrastive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 4))

    def forward(self, left, right):
        return F.pairwise_distance(self.body(left), self.body(right))


def contrastive_loss(distances, same):
    return (same * distances.pow(2) + (1 - same) * F.relu(1.0 - distances).pow(2)).mean()


class SkipGram(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.centre, self.context = nn.Embedding(11, 6), nn.Embedding(11, 6)

    def forward(self, centre_B, context_BT):
        return (self.centre(centre_B).unsqueeze(1) * self.context(context_BT)).sum(-1)


class MatrixFactorisation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(7, 5), nn.Embedding(9, 5)
        self.user_bias, self.item_bias = nn.Embedding(7, 1), nn.Embedding(9, 1)

    def forward(self, user, item):
        rating = (self.users(user) * self.items(item)).sum(1)
        return rating + self.user_bias(user).squeeze(1) + self.item_bias(item).squeeze(1)


class ModelOutput(OrderedDict):
    """Fields by key and by attribute, as large model libraries return them."""

    def __getattr__(self, name):
        if name in self:
            return self[name]
        raise AttributeError(name)


class LibraryModel(nn.Module):
    """Returns its own loss when it gets labels, in an output with named fields."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(11, 8), nn.Linear(8, 4)

    def forward(self, input_ids, labels=None):
        hidden = self.embedding(input_ids).mean(1)
        logits = self.head(hidden)
        if labels is None:
            return ModelOutput(logits=logits)
        return ModelOutput(loss=F.cross_entropy(logits, labels), logits=logits, hidden=hidden)


class DictModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 4)

    def forward(self, x):
        scores = self.body(x)
        return {"scores": scores, "parts": [scores.softmax(-1), (scores.amax(-1), None)]}


def dict_loss(output, label):
    return F.nll_loss(torch.log_softmax(output["scores"], -1), label)


def reparametrised() -> nn.Module:
    body = nn.utils.parametrizations.weight_norm(nn.Linear(6, 12))
    head = nn.utils.parametrizations.spectral_norm(nn.Linear(12, 4))
    return nn.Sequential(body, nn.LeakyReLU(), head)


class AttentionPooling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.randn(1, 1, 8))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x_BTE):
        pooled, weights = self.attention(self.query.expand(x_BTE.shape[0], -1, -1), x_BTE, x_BTE)
        return self.head(pooled.squeeze(1))


class WaveNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 6, 1)
        self.filters = nn.ModuleList(nn.Conv1d(6, 6, 2, dilation=2**i) for i in range(3))
        self.gates = nn.ModuleList(nn.Conv1d(6, 6, 2, dilation=2**i) for i in range(3))
        self.mixes = nn.ModuleList(nn.Conv1d(6, 6, 1) for i in range(3))
        self.last = nn.Conv1d(6, 5, 1)

    def forward(self, x_BCT):
        x, skips = self.first(x_BCT), 0.0
        for filtering, gate, mix in zip(self.filters, self.gates, self.mixes):
            padded = F.pad(x, (filtering.dilation[0], 0))
            out = mix(torch.tanh(filtering(padded)) * torch.sigmoid(gate(padded)))
            skips, x = skips + out, x + out
        return self.last(F.relu(skips))


class GraphConvolution(nn.Module):
    """Sums over the neighbours of each node: `edges_2E` holds the ends of the edges."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, features_NF, edges_2E):
        hidden = F.relu(self.spread(self.first(features_NF), edges_2E))
        return self.second(self.spread(hidden, edges_2E))

    def spread(self, x, edges_2E):
        source, target = edges_2E
        summed = torch.zeros_like(x).index_add(0, target, x[source])
        degree = torch.zeros(x.shape[0], 1, device=x.device).scatter_add(
            0, target.unsqueeze(1), torch.ones(target.shape[0], 1, device=x.device)
        )
        return x + summed / degree.clamp(min=1)


class SpeechModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv1d(4, 6, 3, padding=1)

    def forward(self, sound_BFT):
        return self.body(sound_BFT).permute(2, 0, 1).log_softmax(-1)


class CTC(nn.Module):
    """torch's CTC loss with the lengths as tensors of the device."""

    def forward(self, log_probs_TBC, labels_BS):
        T, B, _ = log_probs_TBC.shape
        lengths = torch.full((B,), T, dtype=torch.int32)
        label_lengths = torch.full((B,), labels_BS.shape[1], dtype=torch.int32)
        return F.ctc_loss(log_probs_TBC, labels_BS, lengths, label_lengths)


class MixtureOfExperts(nn.Module):
    """Weighs all experts: the sizes do not depend on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(6, 3)
        self.experts = nn.ModuleList(nn.Linear(6, 4) for _ in range(3))

    def forward(self, x):
        weights_B3 = torch.softmax(self.gate(x), -1)
        top, _ = weights_B3.topk(2, dim=-1)
        kept_B3 = torch.where(weights_B3 >= top[:, -1:], weights_B3, torch.zeros_like(weights_B3))
        return (torch.stack([expert(x) for expert in self.experts], -1) * kept_B3.unsqueeze(1)).sum(-1)


class ODEBlock(nn.Module):
    """Integrates with fixed Euler steps: a loop over shared weights, with an in-place counter as buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.field = nn.Linear(6, 6)
        self.head = nn.Linear(6, 4)
        self.register_buffer("num_calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        if self.training:
            self.num_calls += 1
        for _ in range(4):
            x = x + 0.25 * torch.tanh(self.field(x))
        return self.head(x)


sgd = partial(torch.optim.SGD, lr=0.05)
momentum = partial(torch.optim.SGD, lr=0.02, momentum=0.9, weight_decay=1e-3)
nesterov = partial(torch.optim.SGD, lr=0.02, momentum=0.9, nesterov=True)
adam = partial(torch.optim.Adam, lr=2e-3)
adamw = partial(torch.optim.AdamW, lr=2e-3, weight_decay=0.05)
# The bias of the keys of an attention cancels in its softmax: the gradient is rounding noise, which a usual `eps` would
# blow up to full steps.
adamw_for_attention = partial(adamw, eps=1e-3)
rmsprop = partial(torch.optim.RMSprop, lr=1e-3)
centred = partial(torch.optim.RMSprop, lr=1e-3, momentum=0.5, centered=True)

labelled = batch_of(floats(5, 6), classes(4, 5))
images = batch_of(floats(4, 3, 8, 8), classes(4, 4))
sentences = batch_of(classes(11, 4, 6), classes(4, 4))
edges = always(torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 5, 5]]))

CASES: Dict[str, Case] = {
    "mlp": Case(mlp, nn.CrossEntropyLoss(), labelled, sgd),
    "mlp with weight decay": Case(mlp, nn.CrossEntropyLoss(), labelled, adamw),
    "mlp with label smoothing": Case(mlp, nn.CrossEntropyLoss(label_smoothing=0.1), labelled, nesterov),
    "mlp for several labels at once": Case(
        mlp, nn.BCEWithLogitsLoss(pos_weight=torch.full((4,), 2.0)), batch_of(floats(5, 6), bits(5, 4)), momentum
    ),
    "regression with the Huber loss": Case(mlp, nn.HuberLoss(), batch_of(floats(5, 6), floats(5, 4)), rmsprop),
    "lazy modules": Case(lazy_mlp, nn.CrossEntropyLoss(), labelled, momentum),
    "cnn with batchnorm and dropout": Case(
        cnn, nn.CrossEntropyLoss(), batch_of(floats(4, 1, 8, 8), classes(4, 4)), momentum
    ),
    "residual network": Case(resnet, nn.CrossEntropyLoss(), images, sgd),
    "separable convolutions and three norms": Case(separable_cnn, nn.CrossEntropyLoss(), images, adam),
    "lstm classifier": Case(LSTMClassifier, nn.CrossEntropyLoss(), sentences, adam),
    "gru tagger": Case(
        GRUTagger, nn.CrossEntropyLoss(ignore_index=0), batch_of(classes(11, 4, 6), classes(5, 4, 6)), centred
    ),
    "transformer encoder": Case(TransformerClassifier, nn.CrossEntropyLoss(), sentences, adamw_for_attention),
    "gpt with tied weights": Case(
        GPT, next_word_loss, batch_of(classes(13, 4, 6), classes(13, 4, 6)), adamw_for_attention
    ),
    "vae": Case(VAE, vae_loss, lambda generator: (torch.randn(5, 8, generator=generator),) * 2, adam),
    "u-net": Case(UNet, nn.CrossEntropyLoss(), batch_of(floats(2, 1, 8, 8), classes(3, 2, 8, 8)), momentum),
    "autoencoder": Case(
        autoencoder, nn.MSELoss(), lambda generator: (torch.randn(5, 8, generator=generator),) * 2, momentum
    ),
    "autoencoder with one weight for both ways": Case(
        TiedAutoencoder, nn.L1Loss(), lambda generator: (torch.randn(5, 8, generator=generator),) * 2, sgd
    ),
    "two inputs": Case(
        TwoInputs,
        nn.CrossEntropyLoss(),
        batch_of(floats(5, 6), classes(11, 5, 3), classes(4, 5)),
        adam,
        num_inputs=2,
    ),
    "two heads with a loss each": Case(
        TwoHeads,
        {
            "kind": LossTerm(nn.CrossEntropyLoss(), output="kind", label=0),
            "size": LossTerm(nn.MSELoss(), output="size", label=1, weight=0.5),
        },
        batch_of(floats(5, 6), classes(4, 5), floats(5)),
        adamw,
        eager_loss=lambda out, batch: F.cross_entropy(out.kind, batch[1]) + 0.5 * F.mse_loss(out.size, batch[2]),
        port={"label": (-2, -1)},
    ),
    "siamese network with triplets": Case(
        Siamese,
        triplet_loss,
        batch_of(floats(5, 6), floats(5, 6), floats(5, 6), always(torch.ones(5))),
        sgd,
        num_inputs=3,
    ),
    "siamese network with pairs": Case(
        Contrastive, contrastive_loss, batch_of(floats(5, 6), floats(5, 6), bits(5)), rmsprop, num_inputs=2
    ),
    "skip-gram": Case(
        SkipGram,
        nn.BCEWithLogitsLoss(),
        batch_of(classes(11, 5), classes(11, 5, 4), bits(5, 4)),
        adam,
        num_inputs=2,
    ),
    "matrix factorisation": Case(
        MatrixFactorisation, nn.MSELoss(), batch_of(classes(7, 5), classes(9, 5), floats(5)), momentum, num_inputs=2
    ),
    "library model with its own loss": Case(
        LibraryModel, None, sentences, adamw, eager_loss=lambda out, batch: out.loss, num_inputs=2
    ),
    "nested dictionary of outputs": Case(DictModel, dict_loss, labelled, sgd),
    "weight and spectral normalisation": Case(reparametrised, nn.CrossEntropyLoss(), labelled, adam),
    "attention pooling": Case(
        AttentionPooling, nn.CrossEntropyLoss(), batch_of(floats(4, 5, 8), classes(4, 4)), adamw_for_attention
    ),
    "dilated convolutions in time": Case(
        WaveNet, nn.CrossEntropyLoss(), batch_of(floats(3, 1, 10), classes(5, 3, 10)), adam
    ),
    "graph convolution": Case(
        GraphConvolution, nn.CrossEntropyLoss(), batch_of(floats(6, 5), edges, classes(3, 6)), adam, num_inputs=2
    ),
    "speech with ctc": Case(
        SpeechModel, CTC(), batch_of(floats(3, 4, 9), lambda g: torch.randint(1, 6, (3, 3), generator=g)), sgd
    ),
    "mixture of experts": Case(MixtureOfExperts, nn.CrossEntropyLoss(), labelled, sgd),
    "loop over shared weights": Case(ODEBlock, nn.CrossEntropyLoss(), labelled, centred),
}


@dataclass(frozen=True)
class Trained:
    """What both loops left of one case."""

    expected_losses: List[float]
    losses: List[float]
    eager: nn.Module
    ported: Any
    inputs: Tuple[torch.Tensor, ...]


@pytest.fixture(scope="module", params=CASES, ids=str)
def trained(request):
    case = CASES[request.param]
    with torch.random.fork_rng(devices=[]):
        expected_losses, eager = train_eagerly(case)
        losses, ported = train_ported(case)
        inputs = inputs_of(case, case.start()[2][0])
    yield Trained(expected_losses, losses, eager, ported, inputs)
    ported.destroy()


@pytest.mark.sampled(10)
def test_the_losses_are_those_of_plain_pytorch(trained):
    torch.testing.assert_close(trained.losses, trained.expected_losses, rtol=1e-5, atol=1e-7)


@pytest.mark.sampled(8)
def test_the_weights_and_statistics_are_those_of_plain_pytorch(trained):
    ported, eager = (
        {name: value for name, value in model.state_dict().items() if value.is_floating_point()}
        for model in (trained.ported, trained.eager)
    )

    torch.testing.assert_close(ported, eager, rtol=1e-4, atol=1e-6)


@pytest.mark.sampled(8)
def test_inference_gives_what_the_plain_model_gives_in_eval_mode(trained):
    with torch.no_grad():
        expected = trained.eager.eval()(*trained.inputs)

    output = trained.ported.inference()(*trained.inputs)

    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-6)


def test_the_port_of_a_plain_loop_changes_three_lines_at_most():
    plain, ported = (inspect.getsource(loop).splitlines()[1:] for loop in (train_eagerly, train_ported))

    changes = [line for line in difflib.ndiff(plain, ported) if line.startswith("+ ")]

    assert len(changes) <= 3, changes
