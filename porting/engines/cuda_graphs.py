"""A program as a CUDA graph: its kernels are recorded once and started together, which small programs gain most from.

Written against the documentation of torch 2.x; no test of this project runs it on a GPU.
"""

from __future__ import annotations

from typing import Callable, Dict, Iterable, List, Tuple

import torch

__all__ = ["CudaGraphRunner"]

_Run = Callable[[List[torch.Tensor]], List[torch.Tensor]]

# Triton tunes its kernels in the first runs, and libraries allocate their workspaces, neither of which can be recorded.
_NUM_WARM_UPS = 3
# So many sets of written tensors keep a recording; each holds memory on the device.
_MAX_RECORDINGS = 4


class _Recording:
    """One recorded graph, the tensors that it reads, and those that it fills."""

    def __init__(self, run: _Run, tensors: List[torch.Tensor], written: Iterable[int]) -> None:
        """Record `run` on `tensors`; those that are not written to are read from copies with fixed addresses."""
        kept = set(written)
        self._copied = [index for index in range(len(tensors)) if index not in kept]
        self._tensors = [tensor.clone() if index in self._copied else tensor for index, tensor in enumerate(tensors)]
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._results = run(list(self._tensors))

    def replay(self, tensors: List[torch.Tensor]) -> List[torch.Tensor]:
        for index in self._copied:
            self._tensors[index].copy_(tensors[index], non_blocking=True)
        self._graph.replay()
        return [result.clone() for result in self._results]


class CudaGraphRunner:
    """`run` as a CUDA graph for each set of written tensors that it is called with, up to a few; plain after that.

    The first calls run plainly. What is recorded is the work on the very memory of the `written` arguments, the
    indices of which are given; the others may be other tensors in each call.
    """

    def __init__(self, run: _Run, *, written: Iterable[int]) -> None:
        """Record nothing yet."""
        self._run = run
        self._written = tuple(written)
        self._recordings: Dict[Tuple[int, ...], _Recording] = {}
        self._num_runs: Dict[Tuple[int, ...], int] = {}

    def __call__(self, tensors: List[torch.Tensor]) -> List[torch.Tensor]:
        """Run the program on tensors of a CUDA device."""
        addresses = tuple(tensors[index].data_ptr() for index in self._written)
        recording = self._recordings.get(addresses)
        if recording is not None:
            return recording.replay(tensors)
        num_runs = self._num_runs.get(addresses, 0)
        if num_runs < _NUM_WARM_UPS or len(self._recordings) >= _MAX_RECORDINGS:
            self._num_runs[addresses] = num_runs + 1
            return self._warmed_up(tensors)
        recording = _Recording(self._run, tensors, self._written)
        self._recordings[addresses] = recording
        return recording.replay(tensors)  # recording does not run anything

    def _warmed_up(self, tensors: List[torch.Tensor]) -> List[torch.Tensor]:
        """Run on a stream of its own, as torch asks for before a recording."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            results = self._run(list(tensors))
        torch.cuda.current_stream().wait_stream(stream)
        return results
