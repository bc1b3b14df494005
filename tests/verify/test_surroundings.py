"""Surroundings and hashes say of two runs what was the same and what was not."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

import porting
from porting import PortOptions
from porting.verify.surroundings import (
    Hasher,
    describe_surroundings,
    hash_options,
    hash_source,
    hash_values,
    list_hash_differences,
    list_surrounding_differences,
)


def digest_of(*values: object) -> str:
    hasher = Hasher()
    for value in values:
        hasher.add(value)
    return hasher.digest


def test_the_surroundings_are_plain_values_and_the_same_again():
    found = describe_surroundings(seeds={"torch": 3})

    assert json.loads(json.dumps(found)) == found
    assert list_surrounding_differences(found, describe_surroundings(seeds={"torch": 3})) == []


def test_a_port_that_has_run_proves_its_device():
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ported = porting.to_ipu(model, nn.MSELoss(), optimizer=optimizer, device="sim")
    for _ in range(3):
        ported(torch.ones(2, 4), torch.ones(2, 2))

    device = describe_surroundings(ported)["device"]

    assert (device["num_calls"], device["num_compilations"], device["is_simulator"]) == (3, 1, True)
    assert "simulator" in device["backend"]


def test_threads_and_versions_that_differ_are_said():
    here = describe_surroundings()
    there = {**here, "threads": here["threads"] + 1, "versions": {**here["versions"], "torch": "1.0"}}

    told = list_surrounding_differences(there, here)

    assert told == [
        f"torch: 1.0 there, {here['versions']['torch']} here",
        f"threads: {here['threads'] + 1} there, {here['threads']} here",
    ]


@pytest.mark.parametrize(
    "other",
    [
        torch.zeros(3),
        torch.zeros(2, dtype=torch.int32),
        torch.zeros(1, 2),
        torch.tensor([0.0, -0.0]),
        torch.zeros(2, dtype=torch.bfloat16),
        torch.zeros(2, device="meta"),
        torch.zeros(2).to_sparse(),
    ],
)
def test_tensors_that_differ_in_anything_have_other_hashes(other):
    assert digest_of(torch.zeros(2)) != digest_of(other)


@pytest.mark.parametrize(
    ("one", "other"), [(["ab"], ["a", "b"]), ([1], [True]), ([1], [1.0]), ([None], ["None"]), ([[1], 2], [[1, 2]])]
)
def test_rows_of_values_that_look_alike_have_other_hashes(one, other):
    assert digest_of(*one) != digest_of(*other)


def test_how_a_tensor_lies_in_memory_does_not_count():
    value = torch.randn(300, 5)

    assert digest_of(value) == digest_of(value.t().contiguous().t())


def test_a_large_tensor_is_hashed_in_blocks():
    value = torch.zeros(5_000_000)
    other = value.clone()
    other[-1] = 1

    assert digest_of(value) != digest_of(other)
    assert digest_of(value) == digest_of(torch.zeros(5_000_000))


def test_weights_count_in_every_bit_and_buffers_too():
    model = nn.BatchNorm1d(3)
    before = hash_values([dict(model.state_dict())])
    with torch.no_grad():
        model.running_mean[1] = 1e-30

    assert hash_values([dict(model.state_dict())]) != before


def test_options_and_hyper_parameters_count():
    model = nn.Linear(2, 2)
    slow, fast = (torch.optim.SGD(model.parameters(), lr=lr) for lr in (0.1, 0.2))

    found = {
        hash_options(PortOptions(), slow),
        hash_options(PortOptions(), fast),
        hash_options(PortOptions(accumulation=2), slow),
        hash_options(PortOptions(), slow, label="y"),
        hash_options(None),
    }

    assert len(found) == 5
    assert hash_options(PortOptions(), slow) in found


PROGRAM = """
import torch
from porting.verify.surroundings import hash_options, hash_source
from porting import PortOptions
import model
made = model.Own()
print(hash_source(made, model.loss, torch.nn.MSELoss()), hash_options(PortOptions()))
"""


def hash_in_another_process(folder: object, python: str = sys.executable) -> str:
    words = [python, "-c", PROGRAM]
    return subprocess.run(words, cwd=str(folder), capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_the_source_of_classes_and_functions_counts_and_is_the_same_in_every_process(tmp_path, program_server):
    source = textwrap.dedent(
        """
        import torch

        class Base(torch.nn.Module):
            def forward(self, x):
                return x * 1.0

        class Own(Base):
            pass

        def loss(output, target):
            return (output - target).abs().mean()
        """
    )
    (tmp_path / "model.py").write_text(source)
    first, again = hash_in_another_process(tmp_path), hash_in_another_process(tmp_path, program_server.python)
    (tmp_path / "model.py").write_text(source.replace("1.0", "2.0"))
    with_another_base = hash_in_another_process(tmp_path, program_server.python)
    (tmp_path / "model.py").write_text(source.replace(".abs()", ".square()"))
    with_another_loss = hash_in_another_process(tmp_path, program_server.python)

    assert first == again
    assert len({first, with_another_base, with_another_loss}) == 3


def test_settings_of_a_librarys_module_count():
    assert hash_source(nn.Dropout(0.1)) != hash_source(nn.Dropout(0.2))
    assert hash_source(nn.Dropout(0.1)) == hash_source(nn.Dropout(0.1))


def test_hashes_that_only_one_side_has_are_said():
    assert list_hash_differences({"weights": "a" * 64}, {}) == [
        "the weights are not the same: aaaaaaaaaaaa there, not known here"
    ]
