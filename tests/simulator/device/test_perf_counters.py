"""Stamps of the last call, the latencies that follow, cycles and the time of a compilation."""

from __future__ import annotations

import datetime

import pytest
import torch
from torch import nn

from porting.simulator._device.perf_counters import EVENTS

LATENCIES = ("getHostIpuLatency", "getComputeLatency", "getIpuHostLatency", "getLatency")


class TwoInTwoOut(nn.Module):
    def forward(self, x, y):
        return x + y, (x - y).sum()


class TwoInOneLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1, 1)

    def forward(self, x, target):
        output = self.linear(x)
        return output, nn.functional.mse_loss(output, target)


def sizes(counters):
    return {event: [len(stamps) for stamps in counters[event]] for event in EVENTS}


def test_nothing_is_known_before_a_run(poptorch):
    executor = poptorch.inferenceModel(TwoInTwoOut())
    before = executor.getPerfCounters()
    executor.compile(torch.ones(2), torch.ones(2))

    assert before == executor.getPerfCounters() == dict.fromkeys(EVENTS, [[]])
    assert [getattr(executor, name)() for name in LATENCIES] == [(0.0, 0.0, 0.0)] * 4


@pytest.mark.parametrize(
    ("mode", "period", "num_outputs"), [("All", None, 24), ("Final", None, 2), ("Sum", None, 2), ("EveryN", 2, 12)]
)
def test_there_is_a_stamp_for_each_micro_batch_in_and_each_result_out(poptorch, mode, period, num_outputs):
    options = poptorch.Options().deviceIterations(4).replicationFactor(2)
    options.Training.gradientAccumulation(3)
    options.outputMode(poptorch.OutputMode[mode], period)
    executor = poptorch.trainingModel(TwoInOneLoss(), options)

    executor(torch.ones(24, 1), torch.ones(24, 1))

    assert sizes(executor.getPerfCounters()) == {
        "input": [24, 24],
        "input_complete": [24, 24],
        "output": [num_outputs] * 2,
        "output_complete": [num_outputs] * 2,
    }


def test_each_run_forgets_the_stamps_of_the_last(poptorch):
    executor = poptorch.inferenceModel(TwoInTwoOut())
    executor(torch.ones(2), torch.ones(2))
    first = executor.getPerfCounters()

    executor(torch.ones(2), torch.ones(2))
    second = executor.getPerfCounters()

    assert sizes(first) == sizes(second)
    assert second["input"][0][0] >= first["output_complete"][0][0]


@pytest.mark.parametrize("mode", ["All", "Final", "Sum"])
@pytest.mark.parametrize("name", LATENCIES)
def test_a_latency_is_shortest_longest_and_mean(poptorch, mode, name):
    options = poptorch.Options().deviceIterations(3).outputMode(poptorch.OutputMode[mode])
    executor = poptorch.inferenceModel(TwoInTwoOut(), options)
    executor(torch.ones(6), torch.ones(6))

    shortest, longest, mean = getattr(executor, name)()

    assert 0 <= shortest <= mean <= longest


def test_the_round_trip_is_the_longest(poptorch):
    executor = poptorch.inferenceModel(TwoInTwoOut())
    executor(torch.ones(2), torch.ones(2))

    whole = executor.getLatency()[1]

    assert all(getattr(executor, name)()[1] <= whole for name in LATENCIES)


def test_events_come_in_order(poptorch):
    executor = poptorch.inferenceModel(TwoInTwoOut(), poptorch.Options().deviceIterations(2))
    executor(torch.ones(2), torch.ones(2))

    counters = executor.getPerfCounters()

    for step in range(2):
        stamps = [counters[event][0][step] for event in EVENTS]
        assert stamps == sorted(stamps)


def test_made_up_data_have_no_stamps(poptorch):
    executor = poptorch.inferenceModel(TwoInTwoOut(), poptorch.Options().enableSyntheticData(True))
    executor(torch.ones(2), torch.ones(2))

    assert sizes(executor.getPerfCounters()) == {event: [0, 0] for event in EVENTS}
    assert executor.getLatency() == (0.0, 0.0, 0.0)


def test_stamps_that_cannot_be_shared_out_are_refused(poptorch):
    executor = poptorch.inferenceModel(TwoInTwoOut())
    executor.getPerfCounters = lambda: {event: [[1.0, 2.0, 3.0] if "in" in event else [4.0, 5.0]] for event in EVENTS}

    with pytest.raises(AssertionError, match="3 input events cannot be shared out over 2 output_complete events"):
        executor.getLatency()


def test_several_steps_of_one_output_count_from_the_first(poptorch):
    executor = poptorch.inferenceModel(TwoInTwoOut())
    executor.getPerfCounters = lambda: {
        "input": [[1.0, 2.0, 5.0, 6.0], [1.5, 2.0, 4.0, 6.0]],
        "input_complete": [[1.0, 2.0, 5.0, 6.0]] * 2,
        "output": [[3.0, 8.0]],
        "output_complete": [[3.5, 9.0]],
    }

    assert executor.getLatency() == (2.5, 5.0, 3.75)
    assert executor.getIpuHostLatency() == (0.5, 1.0, 0.75)
    assert executor.getComputeLatency() == (2.0, 3.0, 2.5)


def test_destroying_forgets_the_stamps(poptorch):
    executor = poptorch.inferenceModel(TwoInTwoOut())
    executor(torch.ones(2), torch.ones(2))

    executor.destroy()

    assert executor.getPerfCounters() == dict.fromkeys(EVENTS, [[]])


def test_cycles_are_counted_on_simulated_hardware(poptorch, monkeypatch, capsys):
    monkeypatch.setenv("PORTING_SIM_HARDWARE", "1")
    executor = poptorch.inferenceModel(nn.ReLU(), poptorch.Options().logCycleCount(True))
    executor.compile(torch.ones(1))
    with pytest.raises(poptorch.Error, match="Please run the model at least once before obtaining cycle count."):
        executor.cycleCount()

    poptorch.setLogLevel("INFO")
    executor(torch.ones(1))
    poptorch.setLogLevel("WARN")

    assert isinstance(executor.cycleCount(), int)
    assert executor.cycleCount() > 0
    assert f"Total number of IPU cycles: {executor.cycleCount()}\n" in capsys.readouterr().err
    executor.destroy()


def test_a_compilation_takes_more_than_a_second_as_on_an_ipu(poptorch):
    executor = poptorch.inferenceModel(nn.ReLU())
    executor.compile(torch.ones(1))

    assert executor.compilationTime() > datetime.timedelta(seconds=1)
