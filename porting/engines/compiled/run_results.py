"""The results of a call whose programs run several times: those of the runs put together as the call's would be."""

from __future__ import annotations

from typing import List, Sequence

import torch

from .call_layout import CallLayout

__all__ = ["ResultsOfRuns"]


class ResultsOfRuns:
    """Gathers the results of several runs.

    A program has already combined the micro-batches of its run, so that only runs are left to be combined here.
    """

    def __init__(self, layout: CallLayout) -> None:
        """Start an empty collection; `layout` says how results are combined, and which are constant."""
        self._layout = layout
        self._runs: List[List[torch.Tensor]] = []

    def add(self, results: List[torch.Tensor]) -> None:
        """Take the results of the next run."""
        kind = self._layout.results
        if kind == "sum" and self._runs:
            # summed at once, so that a call of many runs keeps the memory of one
            pairs = zip(self._runs[0], results)
            self._runs = [[self._add_results(index, total, result) for index, (total, result) in enumerate(pairs)]]
        elif kind == "last":
            self._runs = [results]
        else:
            self._runs.append(results)

    def combine(self) -> List[torch.Tensor]:
        """Return one tensor for each result of the call."""
        if len(self._runs) == 1:
            return list(self._runs[0])
        return [self._join_results(index, parts) for index, parts in enumerate(zip(*self._runs))]

    def _add_results(self, index: int, total: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
        return result if index in self._layout.constant_outputs else total + result

    def _join_results(self, index: int, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        if index in self._layout.constant_outputs:
            return parts[-1]
        return torch.stack(list(parts)) if parts[0].dim() == 0 else torch.cat(list(parts))
