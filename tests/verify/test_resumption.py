"""A training that goes on from a file alone: what the file lacks is told, here and in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import StepLR

import porting
from porting import PortedTraining, PortOptions
from porting.verify import Verdict
from porting.verify.calls import Calls
from porting.verify.resumption import compare_fresh_process, go_on, go_on_in_folder, save_port

BATCH = torch.linspace(-1.0, 1.0, 24).view(4, 6), torch.tensor([0, 1, 2, 0])


def build_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def make_port(model, **loop):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    options = PortOptions(keep_gradients=True)
    ported = porting.to_ipu(model, F.cross_entropy, optimizer=optimizer, options=options, device="sim")
    return PortedTraining(ported, ported.scheduler(StepLR(optimizer, 1, 0.5)), **loop)


def prove(**more):
    model = build_model()
    return porting.verify(
        model,
        F.cross_entropy,
        BATCH,
        optimizer=torch.optim.Adam(model.parameters(), lr=0.01),
        scheduler=lambda optimizer: StepLR(optimizer, 1, 0.5),
        ported=make_port,
        steps=3,
        **more,
    )


def save_all(ported, path):
    scheduler = ported.port_optimizer.list_schedulers([])[0]
    optimizer = ported.port_optimizer.require_users()
    torch.save([ported.model.state_dict(), optimizer.state_dict(), scheduler.state_dict()], path)


def save_weights(ported, path):
    torch.save([ported.model.state_dict()], path)


def load(ported, path):
    states = torch.load(path)
    ported.model.load_state_dict(states[0])
    if len(states) > 1:
        ported.port_optimizer.require_users().load_state_dict(states[1])
        ported.port_optimizer.list_schedulers([])[0].load_state_dict(states[2])


def load_weights(ported, path):
    ported.model.load_state_dict(torch.load(path)[0])


def find_kind(certificate, name):
    (found,) = (kind for kind in certificate.kinds if kind.kind == name)
    return found


def test_a_training_is_resumed_by_the_users_own_functions():
    certificate = prove(save=save_all, load=load)

    assert certificate.verdict is Verdict.PASS, str(certificate)
    assert find_kind(certificate, "resuming").num_compared > 0


def test_what_the_users_file_lacks_is_told():
    certificate = prove(save=save_weights, load=load_weights)

    resuming = find_kind(certificate, "resuming")
    assert certificate.verdict is Verdict.FAIL
    assert resuming.verdict is Verdict.FAIL


def save_without_momentum(ported, path):
    states = ported.model.state_dict(), ported.port_optimizer.list_schedulers([])[0].state_dict()
    torch.save(states, path)


def load_without_momentum(ported, path):
    model, scheduler = torch.load(path)
    ported.model.load_state_dict(model)
    ported.port_optimizer.list_schedulers([])[0].load_state_dict(scheduler)


def test_a_file_without_the_optimizers_state_is_told_as_that():
    certificate = prove(save=save_without_momentum, load=load_without_momentum)

    assert (certificate.first.kind, certificate.first.name) == ("resuming", "exp_avg of 0.weight")
    assert certificate.first.note == "the file does not hold it, or it is not loaded"
    assert certificate.location.cause.startswith("the optimizer's state is not in the file, or is not loaded")
    assert certificate.location.module == "0"


def test_files_that_nothing_reads_are_not_compared():
    certificate = prove(save=save_all)

    resuming = find_kind(certificate, "resuming")
    assert resuming.verdict is Verdict.NOT_COMPARED
    assert "load=" in resuming.note


@pytest.mark.slow
def test_a_schedule_goes_on_where_it_was():
    certificate = prove()

    assert certificate.verdict is Verdict.PASS, str(certificate)


# -- a process of its own ----------------------------------------------------------------------------------------------


def prepare(folder):
    """Return what a training that goes on leaves, and the file that it would go on from."""
    calls = Calls([(BATCH, {})])
    ported = make_port(build_model())
    for args, kwargs in [*calls, *calls]:
        ported.model(*args, **kwargs)
    path = folder / "saved.pt"
    save_port(ported, path)
    first = go_on(ported, calls)
    ported.model.destroy()
    return path, calls, first


def compare(folder, run):
    path, calls, first = prepare(folder)
    return list(compare_fresh_process(run, path, calls, first, 2, 2.0**-23))


def test_a_fresh_port_goes_on_as_the_first_would(tmp_path):
    found = compare(tmp_path, lambda folder: go_on_in_folder(make_port(build_model()), folder))

    assert found
    assert all(one.is_inside for one in found)
    assert {one.kind for one in found} == {"fresh process"}


def test_what_lives_outside_of_the_file_is_missed_there(tmp_path):
    def scale(ported, *args):
        # a factor that the program has set while it trained
        return ported(args[0] * 2.0, *args[1:])

    found = compare(tmp_path, lambda folder: go_on_in_folder(make_port(build_model(), call=scale), folder))

    assert "losses" in [one.name for one in found if not one.is_inside]


@pytest.mark.parametrize("error", [RuntimeError("no such thing\nat all"), OSError("no such thing")])
def test_a_process_that_fails_is_told_with_its_words(tmp_path, error):
    def fail(folder):
        raise error

    (found,) = compare(tmp_path, fail)

    assert not found.is_inside
    assert "it fails in a process of its own: no such thing" in found.note


PROGRAM = """
import torch
from torch import nn

STEPS = []

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 3)
        self.gain = {gain}

    def forward(self, x):
        return self.fc(x) * self.gain

def make():
    model = Net()
    batch = torch.linspace(-1.0, 1.0, 24).view(4, 6), torch.tensor([0, 1, 2, 0])
    return model, nn.CrossEntropyLoss(), batch, torch.optim.Adam(model.parameters(), lr=0.1)
"""


def run_verify(folder, gain):
    (folder / "train.py").write_text(PROGRAM.format(gain=gain))
    command = [sys.executable, "-m", "porting", "verify", "train.py:make", "--steps", "2"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.mark.slow
def test_the_command_resumes_in_a_process_of_its_own(tmp_path):
    done = run_verify(tmp_path, "1.5")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok  fresh process" in done.stdout


@pytest.mark.slow
def test_the_command_tells_what_the_file_does_not_hold(tmp_path):
    # the first process leaves a number beside the program, which the second one finds: no checkpoint holds it
    gain = "2.0 if __import__('pathlib').Path('seen').exists() else (__import__('pathlib').Path('seen').touch() or 1.0)"

    done = run_verify(tmp_path, gain)

    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAIL: " in done.stdout
    assert "fresh process" in done.stdout.splitlines()[1]


def test_a_folder_without_a_file_is_no_training(tmp_path):
    with pytest.raises(OSError, match="calls"):
        go_on_in_folder(make_port(build_model()), Path(tmp_path))
