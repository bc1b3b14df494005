"""`ctc_beam_search_decoder`: the most likely label sequences of a connectionist temporal classification.

T = time steps, B = samples, C = classes, P = paths that are returned.
"""

from __future__ import annotations

from typing import Any, List, NamedTuple, Tuple

import numpy as np
import torch

from ...capture.device_operators import define_device_operator
from ..errors import createPoptorchError
from . import op_library  # noqa: F401 - defines the operator

__all__ = ["ctc_beam_search_decoder"]


def ctc_beam_search_decoder(
    probs: torch.Tensor, lengths: torch.Tensor, blank: int = 0, beam_width: int = 100, top_paths: int = 1
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the `top_paths` best label sequences for log-probabilities `probs` [T, B, C] of `lengths` [B] steps each.

    The results are the log-probabilities [B, P] of the sequences, their lengths [B, P] and their labels [B, P, T],
    filled up with `blank`; lengths and labels are int32. Where fewer sequences are possible than asked for, the rest
    have log-probability -inf and no labels. On the CPU all three are zeros, as in PopTorch.

    Raises `poptorch.Error` for arguments that are no tensors of these shapes.
    """
    if not isinstance(probs, torch.Tensor):
        raise createPoptorchError(
            f"ctc_beam_search_decoder: probs must be a torch.tensor argument, got {type(probs).__name__}."
        )
    if not isinstance(lengths, torch.Tensor):
        raise createPoptorchError(
            f"ctc_beam_search_decoder: lengths must be a torch.tensor argument, got {type(lengths).__name__}."
        )
    if probs.dim() != 3:
        raise createPoptorchError(
            "ctc_beam_search_decoder: probs must be a 3-dimensional tensor (time steps, batch, classes), got "
            f"{probs.dim()} dimensions."
        )
    results = torch.ops.poptorch.ctc_beam_search_decoder(probs, lengths, blank, beam_width, top_paths)
    return tuple(results)


class _Beams(NamedTuple):
    """Label sequences with the log-probabilities that they end in a blank, or in their last label."""

    prefixes: List[Tuple[int, ...]]
    in_blank: Any
    in_label: Any

    @property
    def total(self) -> Any:
        return np.logaddexp(self.in_blank, self.in_label)


def _run_decoder(
    probs: torch.Tensor, lengths: torch.Tensor, blank: int = 0, beam_width: int = 100, top_paths: int = 1
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    num_steps, batch = probs.shape[0], probs.shape[1]
    scores = torch.full((batch, top_paths), -np.inf, dtype=torch.float64)
    path_lengths = torch.zeros(batch, top_paths, dtype=torch.int32)
    paths = torch.full((batch, top_paths, num_steps), blank, dtype=torch.int32)
    log_probs_TBC = probs.detach().double().numpy()
    for sample, length in enumerate(lengths.reshape(-1).tolist()):
        beams = _decode(log_probs_TBC[:length, sample], blank, max(beam_width, top_paths))
        for rank, (prefix, score) in enumerate(zip(beams.prefixes[:top_paths], beams.total)):
            scores[sample, rank] = float(score)
            path_lengths[sample, rank] = len(prefix)
            paths[sample, rank, : len(prefix)] = torch.tensor(prefix, dtype=torch.int32)
    return scores.to(probs.dtype), path_lengths, paths


def _decode(log_probs_TC: Any, blank: int, beam_width: int) -> _Beams:
    """Search the best prefixes step by step; the result is ordered by falling probability."""
    beams = _Beams([()], np.zeros(1), np.full(1, -np.inf))
    with np.errstate(invalid="ignore"):
        for log_probs_C in log_probs_TC:
            beams = _extend(beams, log_probs_C, blank, beam_width)
    return beams


def _extend(beams: _Beams, log_probs_C: Any, blank: int, beam_width: int) -> _Beams:
    """Go one step further: each prefix stays (by a blank, or its last label again) or grows by a label."""
    total, last = beams.total, [prefix[-1] if prefix else blank for prefix in beams.prefixes]
    is_empty = np.array([not prefix for prefix in beams.prefixes])
    rows = np.arange(len(last))
    in_blank = total + log_probs_C[blank]
    in_label = np.where(is_empty, -np.inf, beams.in_label + log_probs_C[last])
    grown = total[:, None] + log_probs_C[None, :]
    # a label that follows itself is a new one only after a blank
    grown[rows, last] = beams.in_blank + log_probs_C[last]
    grown[:, blank] = -np.inf
    index_of = {prefix: index for index, prefix in enumerate(beams.prefixes)}
    for index, prefix in enumerate(beams.prefixes):
        parent = index_of.get(prefix[:-1]) if prefix else None
        if parent is not None:
            in_label[index] = np.logaddexp(in_label[index], grown[parent, prefix[-1]])
            grown[parent, prefix[-1]] = -np.inf
    return _best(beams.prefixes, in_blank, in_label, grown, beam_width)


def _best(prefixes: List[Tuple[int, ...]], in_blank: Any, in_label: Any, grown: Any, beam_width: int) -> _Beams:
    scores = np.concatenate([np.logaddexp(in_blank, in_label), grown.reshape(-1)])
    order = [index for index in np.argsort(-scores, kind="stable")[:beam_width] if scores[index] > -np.inf]
    chosen, new_in_blank, new_in_label = [], [], []
    for index in order:
        if index < len(prefixes):
            chosen.append(prefixes[index])
            new_in_blank.append(in_blank[index])
            new_in_label.append(in_label[index])
        else:
            row, label = divmod(int(index) - len(prefixes), grown.shape[1])
            chosen.append((*prefixes[row], label))
            new_in_blank.append(-np.inf)
            new_in_label.append(grown[row, label])
    return _Beams(chosen, np.array(new_in_blank), np.array(new_in_label))


define_device_operator(torch.ops.poptorch.ctc_beam_search_decoder.default, run=_run_decoder)
