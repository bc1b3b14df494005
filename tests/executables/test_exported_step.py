"""An exported step comes back from its file as it was, in this process and in another."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from porting.executables.key import make_executable_key
from porting.exports import export, load_step


def digest(step):
    return make_executable_key(step.graph, step.request, engine="aot").digest


def test_the_step_comes_back_with_the_same_key(parts, tmp_path):
    model, loss, batch, optimizer = parts

    exported = export(model, loss, batch, tmp_path / "model.step", optimizer=optimizer)

    again = load_step(tmp_path / "model.step")
    assert str(again.graph) == str(exported.graph)
    assert digest(again) == digest(exported)
    assert again.request == exported.request


@pytest.mark.slow
def test_another_process_reads_the_same_key_without_the_model(step_file):
    program = (
        "import sys; from porting.exports import load_step; from porting.executables.key import make_executable_key;"
        "step = load_step(sys.argv[1]); print(make_executable_key(step.graph, step.request, engine='aot').digest)"
    )

    run = subprocess.run([sys.executable, "-c", program, str(step_file)], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == digest(load_step(step_file))


def test_the_batch_is_recorded(step_file):
    step = load_step(step_file)

    assert str(step.batch) == "batch 4 x 2 accumulation = 8 samples a call"
    assert step.batch.arguments == "argument 0: float32[8, 1, 6, 6], argument 1: int64[8]"


def test_weights_and_inputs_are_in_the_file(parts, step_file):
    model, _loss, batch, _optimizer = parts

    step = load_step(step_file)

    assert torch.equal(step.values["head.weight"], model.head.weight)
    assert torch.equal(step.inputs[0], batch[0])


def test_weights_can_be_left_out(parts, tmp_path):
    model, loss, batch, optimizer = parts
    export(model, loss, batch, tmp_path / "model.step", optimizer=optimizer, weights=False)

    step = load_step(tmp_path / "model.step")

    assert set(step.values) == {info.name for info in step.graph.buffers}
    assert [info.shape for info in step.graph.parameters] == [tuple(p.shape) for p in model.parameters()]
