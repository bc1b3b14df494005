"""Overlapped I/O: marks change no result, and a device refuses marks where they must not be."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import porting.simulator as simulator
from porting.simulator import OutputMode, OverlapMode, set_overlap_for_input, set_overlap_for_output

LOOP = OverlapMode.OverlapDeviceIterationLoop


class Model(nn.Module):
    """Runs `body(x, y)` as its forward."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x, y):
        return self.body(x, y)


def options(*, strategy=None, io_tiles=32, mode=OutputMode.All):
    made = simulator.Options().outputMode(mode)
    made.setExecutionStrategy(strategy or simulator.ShardedExecution())
    if io_tiles:
        made.TensorLocations.numIOTiles(io_tiles)
    return made


def run(body, own_options=None):
    return simulator.inferenceModel(Model(body), own_options or options())(torch.ones(2), torch.full((2,), 3.0))


def both(x, y):
    return set_overlap_for_output(set_overlap_for_input(x, LOOP) + y, LOOP)


@pytest.mark.parametrize("mode", list(OverlapMode))
def test_marks_change_no_result(mode):
    def body(x, y):
        x, y = set_overlap_for_input((x, y), mode)
        return set_overlap_for_output([x + y], mode)

    torch.testing.assert_close(run(body), [torch.full((2,), 4.0)])


def test_an_overlapped_input_is_used_by_its_mark_alone():
    message = (
        "poptorch.set_overlap_for_input must be the only op applied to an input. This is not the case for input 0 to "
        "the model."
    )

    with pytest.raises(simulator.Error, match=message):
        run(lambda x, y: set_overlap_for_input(x, LOOP) + y + x)


def test_a_later_input_is_named_by_its_number():
    with pytest.raises(simulator.Error, match="This is not the case for input 1 to the model."):
        run(lambda x, y: set_overlap_for_input(y, LOOP) + y + x)


def test_an_overlapped_input_is_an_input():
    message = "poptorch.set_overlap_for_input applied on a node which is not a tensor input to the model."

    with pytest.raises(simulator.Error, match=message):
        run(lambda x, y: set_overlap_for_input(x + y, LOOP))


def test_an_overlapped_output_is_returned_once():
    def body(x, y):
        z = set_overlap_for_output(x + y, LOOP)
        return z, {"again": (z,)}

    message = (
        "poptorch.set_overlap_for_output cannot be used with a tensor that is returned twice. Please check all "
        "returned tensors including those nested in tuples/lists."
    )
    with pytest.raises(simulator.Error, match=message):
        run(body)


def test_an_overlapped_output_is_an_output():
    message = "poptorch.set_overlap_for_output applied on a node which is not a tensor output to the model."

    with pytest.raises(simulator.Error, match=message):
        run(lambda x, y: set_overlap_for_output(x + y, LOOP) * 2)


def test_pipelines_do_not_overlap():
    message = (
        "Overlapped IO is not supported with poptorch.PipelinedExecution. If you are using only one IPU, please switch "
        "to poptorch.ShardedExecution."
    )

    with pytest.raises(simulator.Error, match=message):
        run(both, options(strategy=simulator.PipelinedExecution(), io_tiles=0, mode=OutputMode.Final))


def test_overlap_needs_tiles_for_it():
    message = (
        "No IO tiles allocated. You must allocate at least 32 IO tiles using "
        r"poptorch.Options\(\).TensorLocations.numIOTiles."
    )

    with pytest.raises(simulator.Error, match=message):
        run(both, options(io_tiles=0, mode=OutputMode.Final))


@pytest.mark.parametrize("mode", [OutputMode.Final, OutputMode.EveryN])
def test_overlap_needs_all_results_or_their_sum(mode):
    message = (
        "Unsupported output mode for overlapped IO. Please switch output mode to poptorch.OutputMode.All or "
        "poptorch.OutputMode.Sum."
    )
    own = options()
    own.outputMode(mode, 1 if mode == OutputMode.EveryN else None)

    with pytest.raises(simulator.Error, match=message):
        run(both, own)


@pytest.mark.parametrize("mode", [OutputMode.All, OutputMode.Sum])
def test_all_results_or_their_sum_can_overlap(mode):
    torch.testing.assert_close(run(both, options(mode=mode)), torch.full((2,), 4.0))


def test_faults_of_the_graph_come_before_those_of_the_options():
    with pytest.raises(simulator.Error, match="not a tensor input"):
        run(lambda x, y: set_overlap_for_input(x + y, LOOP), simulator.Options())


def test_nothing_is_checked_without_overlap():
    def body(x, y):
        return set_overlap_for_output(set_overlap_for_input(x + y, OverlapMode.NoOverlap), OverlapMode.NoOverlap) * x

    torch.testing.assert_close(run(body, simulator.Options()), torch.full((2,), 4.0))
