"""The folder of a training keeps the newest checkpoints, and a damaged one gives way to the one before."""

from __future__ import annotations

import os
import random

import pytest
from torch import nn

from porting.adapters import PortingWarning, save_checkpoint
from porting.adapters.checkpoint_folder import (
    link_checkpoint,
    list_checkpoints,
    name_checkpoint,
    read_newest_checkpoint,
)
from porting.diagnostics import CheckpointError
from tests.resumed_training import train


@pytest.fixture(autouse=True)
def _host_streams_stay():
    state = random.getstate()
    yield
    random.setstate(state)


def test_the_newest_checkpoints_are_kept(tmp_path):
    train(tmp_path)

    assert [path.name for path in list_checkpoints(tmp_path)] == [f"step-{step:08}.pt" for step in range(14, 19)]


def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(tmp_path):
    undisturbed = train(tmp_path / "whole")
    train(tmp_path / "broken", stop_behind=9)
    with open(list_checkpoints(tmp_path / "broken")[-1], "r+b") as file:
        file.truncate(2000)

    with pytest.warns(PortingWarning, match="K003") as said:
        resumed = train(tmp_path / "broken")

    assert "step-00000007.pt" in str(said[0].message)
    assert resumed == undisturbed[7:]


@pytest.mark.parametrize("what", ["name", "version", "method"])
def test_a_directory_with_one_flipped_bit_gives_way_to_the_one_before_as_well(what, tmp_path):
    for step in (1, 2):
        save_checkpoint(name_checkpoint(tmp_path, step), model=nn.Linear(4, 3), step=step)
    newest = name_checkpoint(tmp_path, 2)
    content = bytearray(newest.read_bytes())
    content[content.index(b"PK\1\2") + {"name": 46, "version": 6, "method": 10}[what]] ^= 0x88
    newest.write_bytes(content)

    with pytest.warns(PortingWarning, match="K003"):
        assert read_newest_checkpoint(tmp_path).step == 1


@pytest.mark.filterwarnings("ignore::porting.adapters.PortingWarning")
def test_a_damaged_checkpoint_does_not_take_the_place_of_a_whole_one(tmp_path):
    train(tmp_path, stop_behind=9)
    for path in list_checkpoints(tmp_path)[-2:]:
        path.write_bytes(b"PK")

    train(tmp_path, stop_behind=8, keep=1)

    assert read_newest_checkpoint(tmp_path).step == 7


def test_damaged_checkpoints_only_are_an_error_and_no_new_beginning(tmp_path):
    train(tmp_path, stop_behind=4)
    for path in list_checkpoints(tmp_path):
        path.write_bytes(b"PK")

    with pytest.raises(CheckpointError, match="K001"):
        train(tmp_path)


def test_what_a_killed_process_left_half_written_is_removed(tmp_path):
    (tmp_path / ".step-00000001.pt.1-00.tmp").write_bytes(b"half")

    train(tmp_path, stop_behind=3)

    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("has_links", [True, False], ids=["links", "no links"])
def test_a_checkpoint_may_have_another_name_again_and_again(has_links, tmp_path, monkeypatch):
    def refuse(*_names):
        raise OSError("no links here")

    if not has_links:
        monkeypatch.setattr(os, "link", refuse)
    for step in (1, 2, 2):
        path = name_checkpoint(tmp_path, step)
        path.write_text(str(step))
        link_checkpoint(path, "last.pt")

        assert (tmp_path / "last.pt").read_text() == str(step)
        assert not list(tmp_path.glob(".*"))
