"""Implement `ctc_beam_search_decoder`, which finds the likeliest label sequences of a connectionist temporal model.

T = time steps, B = samples, C = classes, P = paths that are returned.
"""

from __future__ import annotations

from typing import Any, List, NamedTuple, Tuple

import numpy as np
import torch

from .op_library import define_operator, require_argument

__all__ = ["ctc_beam_search_decoder"]


def ctc_beam_search_decoder(
    probs: torch.Tensor, lengths: torch.Tensor, blank: int = 0, beam_width: int = 100, top_paths: int = 1
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the `top_paths` best label sequences for log-probabilities `probs` [T, B, C] of `lengths` [B] steps each.

    The results are the log-probabilities [B, P] of the sequences, their lengths [B, P] and their labels [B, P, T],
    filled up with `blank`; lengths and labels are int32. Where fewer than `top_paths` sequences are possible, the rest
    have log-probability -inf and no labels. On the CPU all three are zeros, as in PopTorch.

    Raises `poptorch.Error` for arguments that are no tensors of these shapes.
    """
    for name, tensor in (("probs", probs), ("lengths", lengths)):
        require_argument(
            isinstance(tensor, torch.Tensor),
            f"ctc_beam_search_decoder: {name} must be a torch.tensor argument, got {type(tensor).__name__}.",
        )
    require_argument(
        probs.dim() == 3,
        "ctc_beam_search_decoder: probs must be a 3-dimensional tensor (time steps, batch, classes), got "
        f"{probs.dim()} dimensions.",
    )
    return tuple(torch.ops.poptorch.ctc_beam_search_decoder(probs, lengths, blank, beam_width, top_paths))


def _make_zeros(
    probs: torch.Tensor, _lengths: torch.Tensor, _blank: int = 0, _beam_width: int = 100, top_paths: int = 1
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    shape = (probs.shape[1], top_paths)
    paths = probs.new_zeros(*shape, probs.shape[0], dtype=torch.int32)
    return probs.new_zeros(shape), probs.new_zeros(shape, dtype=torch.int32), paths


class _Beams(NamedTuple):
    """Label sequences, the likeliest first, with the log-probabilities that they end in a blank or in a label."""

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
        beams = _Beams([()], np.zeros(1), np.full(1, -np.inf))
        # what cannot be is -inf, and the difference of two of those is no number
        with np.errstate(invalid="ignore"):
            for log_probs_C in log_probs_TBC[:length, sample]:
                beams = _extend_beams(beams, log_probs_C, blank, max(beam_width, top_paths))
        for rank, (prefix, score) in enumerate(zip(beams.prefixes[:top_paths], beams.total)):
            scores[sample, rank] = float(score)
            path_lengths[sample, rank] = len(prefix)
            paths[sample, rank, : len(prefix)] = torch.tensor(prefix, dtype=torch.int32)
    return scores.to(probs.dtype), path_lengths, paths


def _extend_beams(beams: _Beams, log_probs_C: np.ndarray, blank: int, beam_width: int) -> _Beams:
    """Go one step further: each prefix stays (by a blank, or its last label again) or grows by a label."""
    # The prefix search of Graves (2006): paths with the same labels are one hypothesis, so their probabilities add up.
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
            # its parent grew into a prefix that is there already: both ways add up
            in_label[index] = np.logaddexp(in_label[index], grown[parent, prefix[-1]])
            grown[parent, prefix[-1]] = -np.inf
    # the prefixes as they are, and after them those that grew: row by row, and label by label
    in_blank = np.concatenate([in_blank, np.full(grown.size, -np.inf)])
    in_label = np.concatenate([in_label, grown.reshape(-1)])
    scores = np.logaddexp(in_blank, in_label)
    best = np.argsort(-scores, kind="stable")[:beam_width]
    best = best[scores[best] > -np.inf]
    prefixes = []
    for index in best.tolist():
        row, label = divmod(index - len(beams.prefixes), grown.shape[1])
        prefixes.append(beams.prefixes[index] if row < 0 else (*beams.prefixes[row], label))
    return _Beams(prefixes, in_blank[best], in_label[best])


define_operator(
    "ctc_beam_search_decoder(Tensor probs, Tensor lengths, int blank=0, int beam_width=100, int top_paths=1)"
    " -> (Tensor, Tensor, Tensor)",
    _make_zeros,
    run=_run_decoder,
)
