"""What the device refuses: calls of operators that it lacks, by public name, with the operator that PopTorch names."""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import torch
import torch.nn.functional as F
from torch import nn

IMAGES = (1, 4, 4, 4)
SQUARE = (4, 4)
VOLUMES = (1, 1, 4, 4, 4)

LACKING: Dict[str, Tuple[Callable[..., Any], Tuple[int, ...], str]] = {
    "torch.angle": (torch.angle, SQUARE, "angle"),
    "torch.digamma": (torch.digamma, SQUARE, "digamma"),
    "torch.erfinv": (torch.erfinv, SQUARE, "erfinv"),
    "torch.heaviside": (lambda x: torch.heaviside(x, x), SQUARE, "heaviside"),
    "torch.hypot": (lambda x: torch.hypot(x, x), SQUARE, "hypot"),
    "torch.lgamma": (torch.lgamma, SQUARE, "lgamma"),
    "torch.logaddexp": (lambda x: torch.logaddexp(x, x), SQUARE, "logaddexp"),
    "torch.mvlgamma": (lambda x: torch.mvlgamma(x + 9, 2), SQUARE, "mvlgamma"),
    "torch.nan_to_num": (torch.nan_to_num, SQUARE, "nan_to_num"),
    "in-place nan_to_num_": (lambda x: (x * 1).nan_to_num_(), SQUARE, "nan_to_num"),
    "torch.polygamma": (lambda x: torch.polygamma(1, x), SQUARE, "polygamma"),
    "torch.sgn": (torch.sgn, SQUARE, "sgn"),
    "torch.sinc": (torch.sinc, SQUARE, "sinc"),
    "torch.xlogy": (lambda x: torch.xlogy(x, x), SQUARE, "xlogy"),
    "torch.logical_xor": (lambda x: torch.logical_xor(x > 0, x > 1), SQUARE, "logical_xor"),
    "xor of truth values": (lambda x: (x > 0) ^ (x > 1), SQUARE, "bitwise_xor"),
    "torch.aminmax": (torch.aminmax, SQUARE, "aminmax"),
    "torch.dist": (lambda x: torch.dist(x, x + 1), SQUARE, "dist"),
    "torch.kthvalue": (lambda x: torch.kthvalue(x, 2), SQUARE, "kthvalue"),
    "torch.mode": (torch.mode, SQUARE, "mode"),
    "torch.nanmean": (torch.nanmean, SQUARE, "nanmean"),
    "torch.quantile": (lambda x: torch.quantile(x, 0.5), SQUARE, "quantile"),
    "torch.cummax": (lambda x: torch.cummax(x, 0)[0], SQUARE, "cummax"),
    "torch.cummin": (lambda x: torch.cummin(x, 0)[0], SQUARE, "cummin"),
    "torch.isin": (lambda x: torch.isin(x, x[0]), SQUARE, "isin"),
    "torch.logcumsumexp": (lambda x: torch.logcumsumexp(x, 0), SQUARE, "logcumsumexp"),
    "torch.pdist": (torch.pdist, SQUARE, "pdist"),
    "torch.cholesky": (torch.linalg.cholesky, SQUARE, "linalg_cholesky"),
    "torch.linalg.cholesky": (torch.linalg.cholesky, SQUARE, "linalg_cholesky"),
    "torch.inverse": (torch.inverse, SQUARE, "inverse"),
    "torch.linalg.inv": (torch.linalg.inv, SQUARE, "linalg_inv"),
    "torch.linalg.det": (torch.linalg.det, SQUARE, "linalg_det"),
    "torch.linalg.eigh": (torch.linalg.eigh, SQUARE, "linalg_eigh"),
    "torch.linalg.qr": (torch.linalg.qr, SQUARE, "linalg_qr"),
    "torch.linalg.solve": (lambda x: torch.linalg.solve(x, x), SQUARE, "linalg_solve"),
    "torch.linalg.svd": (torch.linalg.svd, SQUARE, "linalg_svd"),
    "torch.svd": (torch.svd, SQUARE, "svd"),
    "torch.diag": (torch.diag, SQUARE, "diag"),
    "torch.diagonal": (torch.diagonal, SQUARE, "diagonal"),
    "torch.trace": (torch.trace, SQUARE, "trace"),
    "torch.histc": (torch.histc, SQUARE, "histc"),
    "torch.kron": (lambda x: torch.kron(x, x), SQUARE, "kron"),
    "torch.renorm": (lambda x: torch.renorm(x, 2, 0, 1.0), SQUARE, "renorm"),
    "torch.repeat_interleave": (lambda x: x.repeat_interleave(2), SQUARE, "repeat_interleave"),
    "torch.searchsorted": (lambda x: torch.searchsorted(x[0], x[1]), SQUARE, "searchsorted"),
    "torch.tril": (torch.tril, SQUARE, "tril"),
    "torch.as_strided": (lambda x: x.as_strided((2,), (1,)), SQUARE, "as_strided"),
    "torch.multinomial": (lambda x: x.softmax(1).multinomial(1), SQUARE, "multinomial"),
    "torch.poisson": (lambda x: torch.poisson(x.exp()), SQUARE, "poisson"),
    "torch.nn.HuberLoss": (lambda x: nn.HuberLoss()(x, x + 1), SQUARE, "huber_loss"),
    "torch.nn.MultiMarginLoss": (lambda x: nn.MultiMarginLoss()(x, x.argmax(1)), SQUARE, "multi_margin_loss"),
    "torch.nn.MultiLabelMarginLoss": (
        lambda x: nn.MultiLabelMarginLoss()(x, x.argsort(1)),
        SQUARE,
        "multilabel_margin_loss",
    ),
    "torch.nn.AdaptiveMaxPool1d": (nn.AdaptiveMaxPool1d(2), (1, 4, 4), "adaptive_max_pool1d"),
    "torch.nn.AdaptiveMaxPool2d": (nn.AdaptiveMaxPool2d(2), IMAGES, "adaptive_max_pool2d"),
    "torch.nn.AdaptiveMaxPool3d": (nn.AdaptiveMaxPool3d(2), VOLUMES, "adaptive_max_pool3d"),
    "torch.nn.FractionalMaxPool2d": (nn.FractionalMaxPool2d(2, output_size=2), IMAGES, "fractional_max_pool2d"),
    "torch.nn.FractionalMaxPool3d": (nn.FractionalMaxPool3d(2, output_size=2), VOLUMES, "fractional_max_pool3d"),
    "torch.nn.MaxUnpool1d": (lambda x: nn.MaxUnpool1d(2)(x, x.int()), (1, 2, 4), "max_unpool2d"),
    "torch.nn.MaxUnpool2d": (lambda x: nn.MaxUnpool2d(2)(x, x.int()), IMAGES, "max_unpool2d"),
    "torch.nn.MaxUnpool3d": (lambda x: nn.MaxUnpool3d(2)(x, x.int()), VOLUMES, "max_unpool3d"),
    "torch.nn.ChannelShuffle": (nn.ChannelShuffle(2), IMAGES, "channel_shuffle"),
    "torch.nn.PixelUnshuffle": (nn.PixelUnshuffle(2), IMAGES, "pixel_unshuffle"),
    "torch.nn.Unflatten": (nn.Unflatten(1, (2, 2)), SQUARE, "unflatten"),
    "torch.nn.functional.affine_grid": (
        lambda x: F.affine_grid(x[:1, :2, :3], [1, 1, 2, 2], align_corners=False),
        (1, 4, 4),
        "affine_grid_generator",
    ),
    "torch.nn.functional.grid_sample": (
        lambda x: F.grid_sample(x, x[..., :2], align_corners=False),
        IMAGES,
        "grid_sampler",
    ),
    "torch.nn.CircularPad1d": (nn.CircularPad1d(1), (1, 4, 4), "_pad_circular"),
    "torch.nn.CircularPad2d": (nn.CircularPad2d(1), IMAGES, "_pad_circular"),
    "torch.nn.CircularPad3d": (nn.CircularPad3d(1), VOLUMES, "_pad_circular"),
    "torch.nn.ReflectionPad3d": (nn.ReflectionPad3d(1), VOLUMES, "reflection_pad3d"),
    "padding in a word": (lambda x: F.conv2d(x, x, padding="valid"), IMAGES, "_convolution_mode"),
}


def _always(call: Callable[..., Any]) -> Callable[[], Callable[..., Any]]:
    return lambda: call


REFUSED: Dict[str, Tuple[Callable[..., Any], Tuple[int, ...], str]] = {
    "LSTM of two layers": (lambda: nn.LSTM(4, 4, num_layers=2), (2, 1, 4), "Only LSTM with 1 layer"),
    "GRU of two layers": (lambda: nn.GRU(4, 4, num_layers=2), (2, 1, 4), "Only GRU with 1 layer"),
    "RNN of two layers": (lambda: nn.RNN(4, 4, num_layers=2), (2, 1, 4), "Only RNN with 1 layer"),
    "LSTM in both directions": (
        lambda: nn.LSTM(4, 4, bidirectional=True),
        (2, 1, 4),
        "bidirectional LSTM not supported",
    ),
    "GRU in both directions": (lambda: nn.GRU(4, 4, bidirectional=True), (2, 1, 4), "bidirectional GRU not supported"),
    "RNN in both directions": (
        lambda: nn.RNN(4, 4, bidirectional=True),
        (2, 1, 4),
        "Bidirectional RNN is not supported",
    ),
    "LSTM without biases": (lambda: nn.LSTM(4, 4, bias=False), (2, 1, 4), "LSTM without biases not supported"),
    "RNN without biases": (lambda: nn.RNN(4, 4, bias=False), (2, 1, 4), "RNN without biases is not supported"),
    "class weights": (
        lambda: lambda x: F.cross_entropy(x, x.argmax(1), weight=x[0].abs()),
        SQUARE,
        'Parameter "weight" is unsupported for aten::cross_entropy_loss',
    ),
    "class weights of a likelihood": (
        lambda: lambda x: F.nll_loss(x, x.argmax(1), weight=x[0].abs()),
        SQUARE,
        'Parameter "weight" is unsupported for aten::nll_loss_nd',
    ),
    "CTC loss of each sequence": (
        lambda: lambda x: F.ctc_loss(x, torch.tensor([[1, 2]]), (4,), (2,), reduction="none"),
        (4, 1, 4),
        'CTCLoss with reduction="none" is currently not supported',
    ),
    "offsets that vary": (
        lambda: lambda x: F.embedding_bag(torch.tensor([0, 1]), x, x.argmin(1)[:1] * 0),
        SQUARE,
        "Unsupported aten::embedding_bag operation: offsets tensor must be a constant.",
    ),
    "padding of an embedding bag": (
        lambda: lambda x: F.embedding_bag(torch.tensor([[0, 1]]), x, padding_idx=1),
        SQUARE,
        "Unsupported aten::embedding_bag operation: padding_idx parameter is unsupported.",
    ),
    "an embedding scaled by frequency": (
        lambda: lambda x: F.embedding(torch.tensor([0, 1]), x, scale_grad_by_freq=True),
        SQUARE,
        "scale_grad_by_freq",
    ),
    "an embedding with sparse gradients": (
        lambda: lambda x: F.embedding(torch.tensor([0, 1]), x, sparse=True),
        SQUARE,
        "Unsupported aten::embedding operation: sparse parameter is unsupported.",
    ),
    "an unknown approximation": (
        lambda: lambda x: F.gelu(x, approximate="sigmoid"),
        SQUARE,
        "Unknown GELU approximate",
    ),
    "linear interpolation": (
        lambda: nn.Upsample(scale_factor=2, mode="linear"),
        (1, 2, 4),
        "currently only 'nearest' is supported",
    ),
    "trilinear interpolation": (
        lambda: nn.Upsample(scale_factor=2, mode="trilinear"),
        VOLUMES,
        "currently only 'nearest' is supported",
    ),
    "bilinear interpolation by a fraction": (
        lambda: nn.Upsample(scale_factor=2.5, mode="bilinear"),
        IMAGES,
        "Bilinear upsampling with non-integer factor not supported",
    ),
    "bilinear interpolation of another factor each": (
        lambda: nn.Upsample(scale_factor=(2, 3), mode="bilinear"),
        IMAGES,
        "Non-uniform bilinear upsampling not supported",
    ),
    "bicubic interpolation of corners": (
        lambda: nn.Upsample(scale_factor=2, mode="bicubic", align_corners=True),
        IMAGES,
        "Only support align_corners=False.",
    ),
    "2-norm of a matrix": (lambda: lambda x: torch.linalg.matrix_norm(x, 2), SQUARE, "Matrix 2-norm is not supported."),
    "2-norm of linalg": (lambda: lambda x: torch.linalg.norm(x, 2), SQUARE, "Matrix 2-norm is not supported."),
    "nuclear norm": (lambda: lambda x: torch.norm(x, "nuc"), SQUARE, "Matrix nuclear norm is not supported."),
    "nuclear norm of linalg": (
        lambda: lambda x: torch.linalg.norm(x, "nuc"),
        SQUARE,
        "Matrix nuclear norm is not supported.",
    ),
    "torch.triu": (
        lambda: torch.triu,
        SQUARE,
        "torch.triu is only supported within constant expressions, for example torch.ones(3, 3).triu_().",
    ),
    "in-place triu_": (lambda: lambda x: (x * 1).triu_(), SQUARE, "torch.triu is only supported within constant"),
    "bits of 8-bit integers": (
        lambda: lambda x: x.byte() & 3,
        SQUARE,
        "Poplar does not support binary operations on 8-bit integral types.",
    ),
    "bits of signed 8-bit integers": (
        lambda: lambda x: ~x.char(),
        SQUARE,
        "Poplar does not support binary operations on 8-bit integral types.",
    ),
    "bits of floats": (
        lambda: lambda x: torch.bitwise_xor(x, x),
        SQUARE,
        "Bitwise-xor operator supports only bool and integer types",
    ),
    "a transposed convolution with dilation": (
        lambda: nn.ConvTranspose2d(4, 4, 2, dilation=2),
        IMAGES,
        "dilation is not supported",
    ),
    "positions of maxima": (lambda: nn.MaxPool2d(2, return_indices=True), IMAGES, "return_indices=True"),
    "unsorted topk": (lambda: lambda x: x.topk(2, sorted=False), SQUARE, "sorted=False"),
    "a write to every other row": (
        lambda: lambda x: _filled(x * 1, slice(None, None, 2)),
        SQUARE,
        "In-place modification of slices with step size other than 1 is not supported.",
    ),
    "a write to a view of every other row": (
        lambda: lambda x: (x * 1)[::2].t().add_(1),
        SQUARE,
        "In-place modification of slices with step size other than 1 is not supported.",
    ),
    "a result without elements": (
        lambda: lambda x: x[:0],
        SQUARE,
        r"Zero-sized tensors are unsupported (Got shape [0, 4])",
    ),
    "classes without a number": (
        lambda: lambda x: F.one_hot(x.argmax(1)),
        SQUARE,
        "OneHot num classes must be specified and must be constant.",
    ),
    "counts without a length": (
        lambda: lambda x: torch.bincount(x.argmax(1)),
        SQUARE,
        "Bincount `minlength` must be specified and must be a constant. On the IPU MK2 platform the minimum length is "
        "also the maximum length",
    ),
    **{
        name: (
            _always(call),
            SQUARE,
            "Operations using aten::nonzero are unsupported because the output shape is determined by the tensor "
            "values. The IPU cannot support dynamic output shapes",
        )
        for name, call in [
            ("torch.nonzero", torch.nonzero),
            ("torch.argwhere", torch.argwhere),
            ("torch.masked_select", lambda x: torch.masked_select(x, x > 0)),
            ("torch.unique", torch.unique),
            ("torch.unique_consecutive", torch.unique_consecutive),
            ("a read with a mask", lambda x: x[x > 0]),
            ("a read with a mask of bytes", lambda x: x[(x > 0).byte()]),
            ("where without values", lambda x: torch.where(x > 0)),
        ]
    },
    **{
        name: (
            _always(call),
            SQUARE,
            "aten::item is only supported in eager mode, but was intercepted in a static graph.",
        )
        for name, call in [
            ("torch.equal", lambda x: torch.equal(x, x)),
            ("torch.allclose", lambda x: torch.allclose(x, x)),
            ("torch.Tensor.item", lambda x: x.sum().item()),
            ("torch.Tensor.tolist", lambda x: x.tolist()),
            ("torch.Tensor.numpy", lambda x: x.numpy()),
            ("torch.nn.GaussianNLLLoss", lambda x: nn.GaussianNLLLoss()(x, x, x)),
        ]
    },
    "torch.Tensor.cpu": (
        lambda: lambda x: x.cpu(),
        SQUARE,
        'Illegal move to CPU (via `.to("cpu")`) when using the dispatcher. Instead, return this output as an IPU '
        "tensor.",
    ),
}


def _filled(x: torch.Tensor, index: Any) -> torch.Tensor:
    x[index] = 0.0
    return x
