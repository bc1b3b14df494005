"""Layers, activations, pooling, padding and losses; layers of a case are made once and shared by all runs."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Dict

import torch
import torch.nn.functional as F
from torch import nn

from . import Case, cases

IMAGES = ((2, 4, 8, 8),)
SIGNALS = ((2, 4, 9),)
VOLUMES = ((1, 2, 4, 4, 4),)


class Layer:
    """A layer with weights of its own, made anew for each model, always with the same values."""

    def __init__(self, make: Callable[[], nn.Module], select: Callable[[Any], Any] = lambda output: output) -> None:
        self.make = make
        self.select = select

    def module(self, dtype: torch.dtype) -> nn.Module:
        """Make the layer."""
        with torch.random.fork_rng():
            torch.manual_seed(3)
            return self.make().to(dtype)


def layers(modules: Dict[str, nn.Module], **settings: Any) -> Dict[str, Case]:
    """Make cases of layers without weights."""
    return cases({f"torch.nn.{name}": module for name, module in modules.items()}, **settings)


def _weight_normed() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of the form with `weight_g` and `weight_v`, which programs use
        return nn.utils.weight_norm(nn.Linear(4, 3))


ACTIVATIONS: Dict[str, Case] = {
    **layers(
        {
            name: getattr(nn, name)()
            for name in (
                "CELU ELU GELU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid Mish ReLU ReLU6 SELU "
                "SiLU Sigmoid Softplus Softshrink Softsign Tanh Tanhshrink Identity"
            ).split()
        }
    ),
    **layers({"LogSoftmax": nn.LogSoftmax(1), "Softmax": nn.Softmax(1), "Softmin": nn.Softmin(1)}),
    **layers({"Threshold": nn.Threshold(0.1, 0.5), "GLU": nn.GLU(), "RReLU": nn.RReLU().eval()}),
    **layers({"Softmax2d": nn.Softmax2d(), "PixelShuffle": nn.PixelShuffle(2)}, shapes=IMAGES),
    **cases({"torch.nn.functional.glu": F.glu, "torch.nn.GELU of tanh": nn.GELU("tanh")}),
    **cases({"torch.pixel_shuffle": lambda x: torch.pixel_shuffle(x, 2)}, shapes=IMAGES),
    **layers({"Dropout": nn.Dropout().eval()}),
    **layers({"Dropout2d": nn.Dropout2d().eval()}, shapes=IMAGES),
    **layers({"Dropout3d": nn.Dropout3d().eval()}, shapes=VOLUMES),
    **layers({"AlphaDropout": nn.AlphaDropout().eval(), "FeatureAlphaDropout": nn.FeatureAlphaDropout().eval()}),
    **cases({"torch.nn.functional.dropout": lambda x: F.dropout(x, 0.5, training=False)}),
    **cases({"torch.nn.dropout": lambda x: torch.dropout(x, 0.0, False)}),
}

POOLING: Dict[str, Case] = {
    **layers(
        {"MaxPool1d": nn.MaxPool1d(2), "AvgPool1d": nn.AvgPool1d(3), "LPPool1d": nn.LPPool1d(2, 3)}, shapes=SIGNALS
    ),
    **layers({"MaxPool2d": nn.MaxPool2d(2), "AvgPool2d": nn.AvgPool2d(2)}, shapes=IMAGES),
    **layers({"MaxPool3d": nn.MaxPool3d(2), "AvgPool3d": nn.AvgPool3d(2)}, shapes=VOLUMES),
    **layers({"AdaptiveAvgPool1d": nn.AdaptiveAvgPool1d(3)}, shapes=SIGNALS),
    **layers(
        {"AdaptiveAvgPool2d": nn.AdaptiveAvgPool2d(4), "LocalResponseNorm": nn.LocalResponseNorm(2)}, shapes=IMAGES
    ),
    **layers({"AdaptiveAvgPool3d": nn.AdaptiveAvgPool3d(2)}, shapes=VOLUMES),
    **layers({"ConstantPad1d": nn.ConstantPad1d(1, 2.0), "Unfold": nn.Unfold(3)}, shapes=IMAGES),
    **layers({"ConstantPad2d": nn.ConstantPad2d(1, 2.0), "ZeroPad2d": nn.ZeroPad2d(1)}, shapes=IMAGES),
    **layers({"ConstantPad3d": nn.ConstantPad3d(1, 2.0)}, shapes=VOLUMES),
    **layers(
        {"ReflectionPad1d": nn.ReflectionPad1d(1), "ReplicationPad1d": nn.ReplicationPad1d(1)},
        shapes=SIGNALS,
        has_gradient=False,
    ),
    **layers(
        {"ReflectionPad2d": nn.ReflectionPad2d(1), "ReplicationPad2d": nn.ReplicationPad2d(1)},
        shapes=IMAGES,
        has_gradient=False,
    ),
    **layers({"ReplicationPad3d": nn.ReplicationPad3d(1)}, shapes=VOLUMES, has_gradient=False),
    **cases({"torch.nn.functional.unfold": lambda x: F.unfold(x, 2)}, shapes=IMAGES),
    **cases(
        {"torch.nn.Fold": nn.Fold((4, 4), 2), "torch.nn.functional.fold": lambda x: F.fold(x, (4, 4), 2)},
        shapes=((1, 8, 9),),
    ),
    **cases(
        {
            "torch.nn.Upsample": nn.Upsample(scale_factor=2),
            "torch.nn.functional.interpolate": lambda x: (
                F.interpolate(x, scale_factor=2, mode="bilinear"),
                F.interpolate(x, scale_factor=3.0, mode="bilinear", align_corners=True),
                F.interpolate(x, size=(12, 12), mode="bilinear"),
                F.interpolate(x, size=(5, 7)),
                F.interpolate(x, size=(4, 4), mode="area"),
            ),
            "bicubic interpolation": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False),
        },
        shapes=IMAGES,
    ),
}

WEIGHTED: Dict[str, Case] = {
    **{
        f"torch.nn.{name}": Case(Layer(make, select), shapes=shapes)
        for name, make, select, shapes in [
            ("Linear", lambda: nn.Linear(4, 3), lambda y: y, ((3, 4),)),
            ("Bilinear", lambda: nn.Bilinear(4, 4, 3), lambda y: y, ((3, 4), (3, 4))),
            ("Conv1d", lambda: nn.Conv1d(4, 6, 3, padding=1, groups=2), lambda y: y, SIGNALS),
            ("Conv2d", lambda: nn.Conv2d(4, 3, 3, stride=2, dilation=2), lambda y: y, IMAGES),
            ("Conv3d", lambda: nn.Conv3d(2, 3, 2), lambda y: y, VOLUMES),
            ("ConvTranspose1d", lambda: nn.ConvTranspose1d(4, 3, 3, stride=2), lambda y: y, SIGNALS),
            ("ConvTranspose2d", lambda: nn.ConvTranspose2d(4, 2, 2, stride=2), lambda y: y, IMAGES),
            ("ConvTranspose3d", lambda: nn.ConvTranspose3d(2, 2, 2), lambda y: y, VOLUMES),
            ("LayerNorm", lambda: nn.LayerNorm(4), lambda y: y, ((3, 4),)),
            ("GroupNorm", lambda: nn.GroupNorm(2, 4), lambda y: y, IMAGES),
            ("InstanceNorm1d", lambda: nn.InstanceNorm1d(4, affine=True), lambda y: y, SIGNALS),
            ("InstanceNorm2d", lambda: nn.InstanceNorm2d(4, affine=True), lambda y: y, IMAGES),
            ("InstanceNorm3d", lambda: nn.InstanceNorm3d(2, affine=True), lambda y: y, VOLUMES),
            ("BatchNorm1d", lambda: nn.BatchNorm1d(4).eval(), lambda y: y, SIGNALS),
            ("BatchNorm2d", lambda: nn.BatchNorm2d(4).eval(), lambda y: y, IMAGES),
            ("BatchNorm3d", lambda: nn.BatchNorm3d(2).eval(), lambda y: y, VOLUMES),
            ("PReLU", lambda: nn.PReLU(4), lambda y: y, IMAGES),
            ("LSTM", lambda: nn.LSTM(4, 5), lambda y: y[0], ((6, 2, 4),)),
            ("GRU", lambda: nn.GRU(4, 5, batch_first=True, bias=False), lambda y: y[0], ((2, 6, 4),)),
            ("RNN", lambda: nn.RNN(4, 5, nonlinearity="relu"), lambda y: y[0], ((6, 2, 4),)),
            ("LSTMCell", lambda: nn.LSTMCell(4, 5), lambda y: y[0], ((3, 4),)),
            ("GRUCell", lambda: nn.GRUCell(4, 5), lambda y: y, ((3, 4),)),
            ("RNNCell", lambda: nn.RNNCell(4, 5), lambda y: y, ((3, 4),)),
            ("utils.weight_norm", _weight_normed, lambda y: y, ((3, 4),)),
            ("Sequential", lambda: nn.Sequential(nn.Linear(4, 3), nn.ReLU()), lambda y: y, ((3, 4),)),
            ("TransformerEncoderLayer", lambda: nn.TransformerEncoderLayer(4, 2, 8).eval(), lambda y: y, ((3, 2, 4),)),
            (
                "TransformerDecoderLayer",
                lambda: nn.TransformerDecoderLayer(4, 2, 8).eval(),
                lambda y: y,
                ((3, 2, 4), (3, 2, 4)),
            ),
            (
                "Transformer",
                lambda: nn.Transformer(4, 2, 1, 1, 8, batch_first=True).eval(),
                lambda y: y,
                ((3, 2, 4), (3, 2, 4)),
            ),
        ]
    },
    "torch.nn.MultiheadAttention": Case(
        Layer(lambda: nn.MultiheadAttention(4, 2), lambda y: y), shapes=((3, 2, 4),) * 3
    ),
    **cases({"torch.nn.functional.linear": lambda x, w: F.linear(x, w)}, shapes=((3, 4), (2, 4))),
    **cases(
        {
            "torch.nn.Embedding": lambda w, i: F.embedding(i, w),
            "torch.nn.Embedding with padding": lambda w, i: F.embedding(i, w, padding_idx=2),
            "torch.nn.EmbeddingBag": lambda w, i: F.embedding_bag(i.reshape(1, 3), w, mode="sum"),
        },
        integers=(torch.tensor([2, 0, 2]),),
    ),
}

CLASSES = torch.tensor([1, 3, 0])
SIGNS = torch.tensor([1, -1, 1])

LOSSES: Dict[str, Case] = {
    **cases(
        {
            "torch.nn.CrossEntropyLoss": nn.CrossEntropyLoss(ignore_index=3),
            "torch.nn.functional.cross_entropy": lambda x, y: F.cross_entropy(x, y, reduction="sum"),
            "torch.nn.NLLLoss": lambda x, y: nn.NLLLoss()(x.log_softmax(1), y),
            "torch.nn.functional.nll_loss": lambda x, y: F.nll_loss(x.log_softmax(1), y, ignore_index=0),
        },
        integers=(CLASSES,),
    ),
    **cases(
        {
            "torch.nn.L1Loss": nn.L1Loss(),
            "torch.nn.MSELoss": nn.MSELoss(reduction="sum"),
            "torch.nn.SmoothL1Loss": nn.SmoothL1Loss(beta=0.5),
            "torch.nn.KLDivLoss": lambda x, y: nn.KLDivLoss(reduction="batchmean")(x.log_softmax(1), y.softmax(1)),
            "torch.nn.PoissonNLLLoss": lambda x, y: nn.PoissonNLLLoss()(x, y.abs()),
            "torch.nn.BCELoss": lambda x, y: nn.BCELoss()(x.sigmoid(), y.sigmoid()),
            "torch.nn.BCEWithLogitsLoss": lambda x, y: nn.BCEWithLogitsLoss()(x, y.sigmoid()),
            "torch.nn.SoftMarginLoss": lambda x, y: nn.SoftMarginLoss()(x, y.sign()),
            "torch.nn.MultiLabelSoftMarginLoss": lambda x, y: nn.MultiLabelSoftMarginLoss()(x, (y > 0).to(x.dtype)),
            "torch.nn.HingeEmbeddingLoss": lambda x, y: nn.HingeEmbeddingLoss()(x, y.sign()),
            "torch.nn.TripletMarginLoss": lambda x, y: nn.TripletMarginLoss()(x, y, y.flip(0)),
            "BCE with logits, weighted": lambda x, y: F.binary_cross_entropy_with_logits(
                x, y.sigmoid(), weight=y[0].abs(), pos_weight=y[1].abs()
            ),
        },
        shapes=((3, 4), (3, 4)),
    ),
    **cases(
        {
            "torch.nn.CosineEmbeddingLoss": nn.CosineEmbeddingLoss(),
            "torch.nn.MarginRankingLoss": lambda x, y, s: nn.MarginRankingLoss()(x[:, 0], y[:, 0], s),
        },
        shapes=((3, 4), (3, 4)),
        integers=(SIGNS,),
    ),
    "torch.nn.CTCLoss": Case(
        lambda x, y: F.ctc_loss(x.log_softmax(2), y, (5, 5), (2, 2)),
        shapes=((5, 2, 4),),
        integers=(torch.tensor([[1, 2], [3, 1]]),),
    ),
}
