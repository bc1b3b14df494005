"""A training that ends early, however it ends, goes on with the same losses bit for bit."""

from __future__ import annotations

import errno
import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import nn

from porting import fit, to_ipu
from porting.adapters import load_checkpoint
from porting.adapters.checkpoint_folder import list_checkpoints, read_newest_checkpoint
from porting.diagnostics import CheckpointError, OptionError
from tests import resumed_training
from tests.resumed_training import train

PROGRAM = Path(resumed_training.__file__)
STEPS_PER_EPOCH = 6


@pytest.fixture(autouse=True)
def _host_streams_stay():
    state = random.getstate()
    yield
    random.setstate(state)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("stop_behind", [1, 4, 5, 6, 7, 13], ids=lambda step: f"step {step}")
@pytest.mark.parametrize("kind", ["shuffled", "own generator", "shares"])
def test_a_training_goes_on_with_the_same_losses(kind, stop_behind, tmp_path):
    undisturbed = train(tmp_path / "whole", kind=kind)

    begun = train(tmp_path / "broken", kind=kind, stop_behind=stop_behind)
    resumed = train(tmp_path / "broken", kind=kind)

    # the call that Ctrl-C came behind has no checkpoint, and is made again
    assert begun[:-1] + resumed == undisturbed
    assert resumed[0] == begun[-1]


@pytest.mark.parametrize(
    "options",
    [
        {"device_iterations": 3, "output_mode": "all"},
        {"accumulation": 2},
        {"precision": "float16"},
        {"precision": "mixed"},
        {"seed": 5},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::porting.adapters.PortingWarning")
def test_it_does_so_with_other_options(options, tmp_path):
    undisturbed = train(tmp_path / "whole", **options)

    begun = train(tmp_path / "broken", stop_behind=5, **options)

    assert begun[:-1] + train(tmp_path / "broken", **options) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["workers", "persistent workers"])
def test_it_does_so_with_loading_processes(kind, tmp_path):
    undisturbed = train(tmp_path / "whole", kind=kind)

    begun = train(tmp_path / "broken", kind=kind, stop_behind=9)

    assert begun[:-1] + train(tmp_path / "broken", kind=kind) == undisturbed


def test_without_every_it_goes_on_from_the_last_complete_epoch(tmp_path):
    undisturbed = train(tmp_path / "whole")

    begun = train(tmp_path / "broken", every=None, stop_behind=10)

    assert begun[:STEPS_PER_EPOCH] + train(tmp_path / "broken", every=None) == undisturbed


def test_checkpoints_do_not_change_the_training(tmp_path):
    assert train(tmp_path / "kept") == train(None)


def test_a_training_that_has_ended_is_not_made_again_and_says_so(tmp_path, caplog):
    train(tmp_path)

    with caplog.at_level("WARNING", logger="porting"):
        assert train(tmp_path) == []

    assert "nothing is left to train" in caplog.text
    assert "the training goes on" not in caplog.text


def kill_at_random(server, folder, *, moments):
    """Start the program again and again, kill it after each of `moments` (seconds), let it end, return its losses."""
    log = folder / "losses"
    command = [str(PROGRAM), str(folder / "kept"), str(log), "kind=shuffled"]
    for moment in [*moments, None]:
        num_before = log.read_text().count("\n") if log.exists() else 0
        with open(os.devnull, "r+b") as nothing:
            process = server.start(command, [nothing.fileno()] * 3)
        if moment is not None:
            # until it is behind its imports
            while server.is_running and (log.read_text().count("\n") if log.exists() else 0) == num_before:
                time.sleep(0.005)
            time.sleep(moment)
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        assert server.wait() in ((0,) if moment is None else (0, -signal.SIGKILL))
    return [tuple(line.split()) for line in log.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_training_killed_at_random_moments_has_the_same_losses(tmp_path, simulator_server):
    moments = [random.Random(7).uniform(0.0, 0.12) for _ in range(6)]
    expected = {str(step): loss for step, loss in train(tmp_path / "whole")}

    losses = kill_at_random(simulator_server, tmp_path, moments=moments)

    assert dict(losses) == expected
    assert [pair for pair in losses if expected[pair[0]] != pair[1]] == []
    assert not list((tmp_path / "kept").glob(".*"))


# -- the folder --------------------------------------------------------------------------------------------------------


def test_ctrl_c_leaves_a_folder_to_go_on_from(tmp_path):
    train(tmp_path, stop_behind=4)

    checkpoint = read_newest_checkpoint(tmp_path)

    assert (checkpoint.step, checkpoint.epoch) == (3, 0)
    assert not list(tmp_path.glob(".*"))


def test_without_resume_a_used_folder_is_refused(tmp_path):
    train(tmp_path, stop_behind=3)

    with pytest.raises(OptionError, match="`resume` is False"):
        train(tmp_path, resume=False)


def test_a_second_training_in_the_folder_is_refused_while_the_first_one_runs(tmp_path):
    model = nn.Linear(4, 3)
    batches = [(torch.ones(3, 4), torch.tensor([0, 1, 2]))]
    codes = []

    def begin_another(_returned):
        with pytest.raises(CheckpointError) as caught:
            train(tmp_path)
        codes.append(caught.value.code)

    fit(to_ipu(model, nn.CrossEntropyLoss()), batches, 1, progress=False, checkpoint=tmp_path, after_call=begin_another)

    assert codes == ["K009"]
    assert not list(tmp_path.glob(".*"))


def test_a_folder_that_is_a_file_is_refused_before_anything_is_trained(tmp_path):
    (tmp_path / "kept").write_text("a file")
    ported = to_ipu(nn.Linear(4, 3), nn.CrossEntropyLoss())

    with pytest.raises(CheckpointError, match="K008"):
        fit(ported, [(torch.ones(3, 4), torch.tensor([0, 1, 2]))], 1, progress=False, checkpoint=tmp_path / "kept")

    assert ported.port_optimizer.num_steps == 0


def test_a_disk_that_fills_up_ends_the_training_and_leaves_what_it_can_go_on_from(tmp_path, monkeypatch):
    undisturbed = train(tmp_path / "whole")
    saved = torch.save

    def fill(content, file):
        if content["step"] == 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        saved(content, file)

    monkeypatch.setattr(torch, "save", fill)
    with pytest.raises(CheckpointError, match="K008"):
        train(tmp_path / "full")
    monkeypatch.setattr(torch, "save", saved)

    assert not list((tmp_path / "full").glob(".*"))
    assert train(tmp_path / "full") == undisturbed[5:]


def test_only_the_first_instance_writes(tmp_path, monkeypatch):
    train(tmp_path, stop_behind=4)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    present = list_checkpoints(tmp_path)
    model = nn.Linear(4, 3)

    fit(to_ipu(model, nn.CrossEntropyLoss()), [], 1, progress=False, checkpoint=tmp_path / "other")

    assert list_checkpoints(tmp_path) == present
    assert list_checkpoints(tmp_path / "other") == []


@pytest.mark.parametrize("settings", [{"every": 0}, {"keep": 0}, {"every": 1.5}], ids=str)
def test_counts_that_are_none_are_refused(settings, tmp_path):
    ported = to_ipu(nn.Linear(4, 3), nn.CrossEntropyLoss())

    with pytest.raises(OptionError, match="P002"):
        fit(ported, [], 1, progress=False, checkpoint=tmp_path, **settings)


def test_a_place_in_an_epoch_of_another_length_is_refused(tmp_path):
    train(tmp_path, stop_behind=4)
    ported, _scheduler = resumed_training.make_port()
    rows = [(torch.ones(4, 4), torch.zeros(4, dtype=torch.int64))] * 9

    with pytest.raises(CheckpointError, match="K002"):
        fit(ported, rows, 1, progress=False, checkpoint=tmp_path)


def test_the_file_is_plain_enough_for_torch_alone(tmp_path):
    train(tmp_path, stop_behind=4)

    content = torch.load(list_checkpoints(tmp_path)[-1], weights_only=True)

    assert content["step"] == 3
    assert set(load_checkpoint(list_checkpoints(tmp_path)[-1]).model) == set(content["model"])


# -- the best and the last ---------------------------------------------------------------------------------------------


def test_last_is_the_newest_checkpoint(tmp_path):
    train(tmp_path, stop_behind=4)

    assert load_checkpoint(tmp_path / "last.pt").step == 3


def test_a_training_goes_on_from_last_where_it_is_all_that_was_kept(tmp_path):
    undisturbed = train(tmp_path / "whole")
    train(tmp_path / "broken", stop_behind=4)
    for path in list_checkpoints(tmp_path / "broken"):
        path.unlink()

    assert train(tmp_path / "broken") == undisturbed[3:]


def train_with(losses, folder, *, num_epochs=None):
    """Train epochs whose validation has these losses."""
    model = nn.Linear(4, 3)
    seen = iter(losses)
    return fit(
        to_ipu(model, nn.CrossEntropyLoss(), device="sim"),
        [(torch.ones(3, 4), torch.tensor([0, 1, 2]))],
        num_epochs or len(losses),
        progress=False,
        checkpoint=folder,
        validation=[(torch.ones(3, 4), torch.tensor([0, 1, 2]))],
        metrics={"asked": lambda _output, _labels: next(seen)},
        monitor="val_asked",
        keep=2,
    )


def test_best_is_that_of_the_best_epoch_although_only_the_newest_stay(tmp_path):
    train_with([3.0, 1.0, 2.0, 2.0, 2.0], tmp_path)

    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-00000004.pt", "step-00000005.pt"]
    assert load_checkpoint(tmp_path / "best.pt").step == 2


def test_a_resumed_training_knows_the_best_epoch(tmp_path):
    train_with([3.0, 1.0], tmp_path)

    train_with([2.0, 2.0], tmp_path, num_epochs=4)

    assert load_checkpoint(tmp_path / "best.pt").step == 2


def test_a_program_that_ended_before_it_named_the_best_does_it_when_it_goes_on(tmp_path):
    train_with([3.0, 1.0], tmp_path)
    for name in ("best.pt", "last.pt"):
        (tmp_path / name).unlink()

    train_with([], tmp_path, num_epochs=2)

    assert [load_checkpoint(tmp_path / name).step for name in ("best.pt", "last.pt")] == [2, 2]


def test_an_epoch_without_a_number_is_never_the_best(tmp_path):
    train_with([float("nan")], tmp_path)

    assert not (tmp_path / "best.pt").exists()
