"""Checkpoints: what comes out is what went in, and a wrong one changes nothing."""

from __future__ import annotations

import copy
import errno
import os
import pickle
import sys
from collections import Counter, OrderedDict, defaultdict
from contextlib import suppress

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.adapters.checkpoints import (
    Checkpoint,
    load_checkpoint,
    load_weights,
    plain_state_dict,
    read_tensors,
    save_checkpoint,
)
from porting.adapters.loss import LossInForward
from porting.diagnostics import CheckpointError, OptionError

if sys.platform != "win32":
    import resource


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(3, 3), nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.norm(self.first(x)))


def make_model():
    torch.manual_seed(0)
    return Tied()


def trained(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 5, 5])
    for _ in range(3):
        F.mse_loss(model(torch.randn(4, 3)), torch.ones(4, 3)).backward()
        optimizer.step()
        scheduler.step()
    return optimizer, scheduler


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoint.pt"


def test_everything_comes_back(path):
    model = make_model()
    optimizer, scheduler = trained(model)

    save_checkpoint(path, model=model, optimizer=optimizer, scheduler=scheduler, step=3, extra={"seed": [1, (2, None)]})
    checkpoint = load_checkpoint(path)

    torch.testing.assert_close(dict(checkpoint.model), dict(model.state_dict()))
    torch.testing.assert_close(checkpoint.optimizer, optimizer.state_dict())
    assert checkpoint.scheduler == scheduler.state_dict()
    assert (checkpoint.step, checkpoint.extra) == (3, {"seed": [1, (2, None)]})


def test_what_came_back_can_be_loaded(path):
    model, other = make_model(), Tied()
    optimizer, scheduler = trained(model)
    other_optimizer, other_scheduler = trained(other)
    save_checkpoint(path, model=model, optimizer=optimizer, scheduler=scheduler)

    checkpoint = load_checkpoint(path)
    load_weights(other, checkpoint)
    other_optimizer.load_state_dict(checkpoint.optimizer)
    other_scheduler.load_state_dict(checkpoint.scheduler)

    torch.testing.assert_close(dict(other.state_dict()), dict(model.state_dict()))
    assert isinstance(other_scheduler.milestones, Counter)
    assert other_optimizer.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]


def test_a_checkpoint_needs_only_torch_to_be_read(path):
    model = make_model()
    save_checkpoint(path, model=model)

    plain = torch.load(path, weights_only=True)

    make_model().load_state_dict(plain["model"])
    assert {type(tensor) for tensor in plain["model"].values()} == {torch.Tensor}


def test_a_model_that_trained_on_the_device_is_saved_plainly(path, poptorch):
    model = make_model()
    wrapped = LossInForward(model, F.mse_loss, backend=poptorch)
    executor = poptorch.trainingModel(wrapped, optimizer=poptorch.optim.SGD(wrapped.parameters(), lr=0.1))
    executor(torch.ones(4, 3), torch.zeros(4, 3))

    save_checkpoint(path, model=wrapped)
    executor.destroy()

    plain = torch.load(path, weights_only=True)["model"]
    assert {type(tensor) for tensor in plain.values()} == {torch.Tensor}
    torch.testing.assert_close(dict(plain), dict(model.state_dict()))


def test_tied_weights_are_written_once_and_come_back_tied(path):
    save_checkpoint(path, model=make_model())

    state = load_checkpoint(path).model

    assert state["first.weight"].data_ptr() == state["second.weight"].data_ptr()


def test_a_slice_does_not_take_its_whole_along(path):
    save_checkpoint(path, model={"row": torch.zeros(1000, 1000)[0]})

    assert os.path.getsize(path) < 20_000


def test_a_plain_state_dict_file_is_a_checkpoint_too(path):
    model = make_model()
    torch.save(model.state_dict(), path)

    checkpoint = load_checkpoint(path)

    torch.testing.assert_close(dict(checkpoint.model), dict(model.state_dict()))
    assert checkpoint == Checkpoint(model=checkpoint.model)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([1, 2], "it holds a list, not the state of a model"),
        ({1: torch.ones(1)}, "it is neither a checkpoint nor the `state_dict()` of a model"),
        ({"a": 1}, "it is neither a checkpoint nor the `state_dict()` of a model"),
        ({"format": "porting-checkpoint", "version": 2}, "it has version 2; this package reads version 1"),
        (
            {"format": "porting-checkpoint", "version": 1, "model": {}},
            "its optimizer, scheduler, step, extra is missing",
        ),
    ],
)
def test_another_content_is_an_error(path, content, reason):
    torch.save(content, path)

    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path)

    assert caught.value.code == "K001"
    assert caught.value.finding.notes == (reason,)


# -- writing -------------------------------------------------------------------------------------------------------


def test_a_failed_write_leaves_the_old_file_and_no_other(path, monkeypatch):
    save_checkpoint(path, model=make_model(), step=1)

    def fail(content, file):
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(CheckpointError, match="K008.*cannot be written: No space left on device"):
        save_checkpoint(path, model=make_model(), step=2)

    assert load_checkpoint(path).step == 1
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.skipif(sys.platform == "win32", reason="sets the largest size of a file")
def test_a_disk_that_is_full_in_the_middle_leaves_the_old_file_and_no_other(path):
    save_checkpoint(path, model=make_model(), step=1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * path.stat().st_size, before[1]))
    try:
        with pytest.raises(CheckpointError, match="K008"):
            save_checkpoint(path, model={"weight": torch.ones(10_000), "other": torch.zeros(10_000)}, step=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert load_checkpoint(path).step == 1
    assert os.listdir(path.parent) == [path.name]


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(CheckpointError, match="K008.*No such file or directory"):
        save_checkpoint(tmp_path / "nowhere" / "model.pt", model=make_model())


def test_an_error_of_torchs_own_is_no_write_error(path, monkeypatch):
    monkeypatch.setattr(torch, "save", lambda *_arguments: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        save_checkpoint(path, model=make_model())


def test_a_new_checkpoint_takes_the_place_of_the_old_one(path):
    save_checkpoint(path, model=make_model(), step=1)

    save_checkpoint(str(path), model=make_model(), step=2)

    assert load_checkpoint(path).step == 2
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"a": [1, {2}]}, "`extra['a'][1]` is a builtins.set"),
        ({"lambda": test_everything_comes_back}, "`extra['lambda']` is a builtins.function"),
        (nn.ReLU, "`extra` is a builtins.type"),
        ({(1, 2): 3}, "`a key of extra` is a builtins.tuple"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(path, extra, message):
    with pytest.raises(OptionError) as caught:
        save_checkpoint(path, model=make_model(), extra=extra)

    assert message in caught.value.finding.message
    assert not path.exists()


def test_containers_are_kept_or_made_plain(path):
    extra = {
        "ordered": OrderedDict(a=1),
        "default": defaultdict(list, a=[1]),
        "count": Counter("aab"),
        "size": torch.Size([2]),
    }

    save_checkpoint(path, model={}, extra=extra)

    assert load_checkpoint(path).extra == {**extra, "default": {"a": [1]}, "size": (2,)}


def test_a_snapshot_does_not_follow_the_training():
    model = make_model()

    snapshot = plain_state_dict(model)
    nn.init.zeros_(model.first.weight)

    assert snapshot["first.weight"].any()
    assert snapshot["first.weight"] is snapshot["second.weight"]
    assert list(snapshot) == list(model.state_dict())


# -- weights of another model --------------------------------------------------------------------------------------


def foreign():
    return {
        "first.weight": torch.ones(3, 4),
        "first.bias": torch.ones(3),
        "third.bias": torch.ones(3),
    }


@pytest.mark.parametrize("kind", ["mapping", "file", "checkpoint"])
def test_weights_of_another_model_are_refused_and_change_nothing(path, kind):
    model = nn.Sequential(OrderedDict(first=nn.Linear(3, 3), second=nn.Linear(3, 3, bias=False)))
    before = copy.deepcopy(model.state_dict())
    save_checkpoint(path, model=foreign())
    weights = {"mapping": foreign(), "file": path, "checkpoint": load_checkpoint(path)}[kind]

    with pytest.raises(CheckpointError) as caught:
        load_weights(model, weights)

    assert caught.value.code == "K002"
    assert caught.value.finding.notes == (
        "missing: `second.weight`",
        "unexpected: `third.bias`",
        "shape of `first.weight`: [3, 4] instead of [3, 3]",
    )
    torch.testing.assert_close(dict(model.state_dict()), dict(before))


def test_a_model_that_loads_its_own_way_is_restored_too():
    model = make_model()
    before = copy.deepcopy(model.state_dict())

    with pytest.raises(CheckpointError, match="K002"):
        load_weights(model, {**before, "first.bias": torch.zeros(3), "third.bias": torch.ones(3)})

    torch.testing.assert_close(dict(model.state_dict()), dict(before))


def test_a_model_that_translates_old_names_may_do_so():
    model = nn.Linear(2, 2)
    model.register_load_state_dict_pre_hook(
        lambda module, state, prefix, *_: state.update({prefix + "weight": state.pop(prefix + "kernel")})
    )

    load_weights(model, {"kernel": torch.ones(2, 2), "bias": torch.zeros(2)})

    assert torch.equal(model.weight, torch.ones(2, 2))


def test_many_differences_are_counted_and_not_all_listed():
    model = nn.Linear(2, 2)

    with pytest.raises(CheckpointError) as caught:
        load_weights(model, {**model.state_dict(), **{f"extra.{i}": torch.ones(1) for i in range(30)}})

    assert len(caught.value.finding.notes) == 11
    assert caught.value.finding.notes[-1] == "unexpected: and 20 more"


def test_the_right_weights_are_loaded_from_a_file(path):
    model, other = make_model(), Tied()
    torch.save(model.state_dict(), path)

    load_weights(other, path)

    torch.testing.assert_close(dict(other.state_dict()), dict(model.state_dict()))


def test_a_lazy_model_takes_its_shapes_from_the_checkpoint():
    lazy = nn.LazyLinear(2)

    load_weights(lazy, nn.Linear(3, 2).state_dict())

    assert lazy.weight.shape == (2, 3)


class Versioned(nn.Linear):
    """Loads nothing that does not say which version of its format it is in."""

    _version = 2

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        assert local_metadata.get("version") == 2
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


def test_the_versions_of_modules_come_along(path, poptorch):
    model = nn.Sequential(Versioned(2, 3))
    executor = poptorch.trainingModel(
        LossInForward(model, nn.CrossEntropyLoss(), backend=poptorch),
        optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1),
    )
    executor(torch.ones(4, 2), torch.tensor([0, 1, 2, 0]))

    state = plain_state_dict(model)
    save_checkpoint(path, model=model)
    executor.destroy()

    for saved in (state, load_checkpoint(path).model, torch.load(path, weights_only=True)["model"]):
        other = nn.Sequential(Versioned(2, 3))
        other.load_state_dict(saved)
        assert torch.equal(other[0].weight, model[0].weight)
    load_weights(nn.Sequential(Versioned(2, 3)), state)


# -- files of `torch.save`, whole, damaged and foreign -----------------------------------------------------------------


TENSORS = {"weight": torch.arange(1000.0), "nested": [torch.ones(2), 3]}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tensors.pt"
    torch.save(TENSORS, path)
    return path


def reason(path):
    with pytest.raises(CheckpointError) as caught:
        read_tensors(path)
    assert caught.value.code == "K001"
    assert caught.value.finding.message == f"`{path}` cannot be loaded"
    return caught.value.finding.notes[0]


def test_a_whole_file_is_read(file):
    torch.testing.assert_close(read_tensors(file), TENSORS)


def test_a_file_without_checksums_is_read(tmp_path):
    path = tmp_path / "tensors.pt"
    had_checksums = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(TENSORS, path)
    finally:
        torch.serialization.set_crc32_options(had_checksums)

    torch.testing.assert_close(read_tensors(path), TENSORS)


def test_a_file_of_the_old_format_is_read(tmp_path):
    path = tmp_path / "tensors.pt"
    torch.save(TENSORS, path, _use_new_zipfile_serialization=False)

    torch.testing.assert_close(read_tensors(path), TENSORS)


def test_one_flipped_bit_in_the_weights_is_found(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)

    assert reason(file).startswith("the archive is cut off or corrupt: Bad CRC-32")


def test_one_flipped_bit_anywhere_is_found_or_changes_nothing(file):
    content = file.read_bytes()
    directory = content.index(b"PK\1\2")
    # the names and sizes of the records, all of them, and a sample of what they say
    places = [*range(directory, len(content)), *range(0, directory, 97)]
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        file.write_bytes(damaged)
        with suppress(CheckpointError):
            torch.testing.assert_close(read_tensors(file), TENSORS, rtol=0, atol=0)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_truncated_file_is_found(file, share):
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * share)])

    assert reason(file).startswith("the archive is cut off or corrupt")


def test_an_empty_file_is_found(file):
    file.write_bytes(b"")

    assert reason(file) == "it is empty"


@pytest.mark.parametrize("content", [b"hello, world\n" * 10, b"\x80\x02.", b"\x00" * 100])
def test_something_else_is_found(file, content):
    file.write_bytes(content)

    assert "torch" in reason(file)


def test_a_pickled_model_is_named_and_not_run(tmp_path):
    path = tmp_path / "model.pt"
    torch.save(nn.Linear(2, 2), path)

    with pytest.raises(CheckpointError) as caught:
        read_tensors(path)

    assert "torch.nn.modules.linear.Linear" in caught.value.finding.notes[0]
    assert "model.state_dict()" in caught.value.finding.help[0]


def test_a_pickle_that_would_run_code_is_not_run(tmp_path):
    path = tmp_path / "evil.pt"
    path.write_bytes(pickle.dumps({"weight": _Touch(tmp_path / "touched")}, protocol=2))

    reason(path)

    assert not (tmp_path / "touched").exists()


def test_a_file_that_is_not_there_is_pythons_own_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_tensors(tmp_path / "nowhere.pt")


class _Touch:
    """Pickled, it makes a file when somebody unpickles it."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")
