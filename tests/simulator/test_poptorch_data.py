"""The metadata beside an executable."""

from __future__ import annotations

import pickle

import pytest

from porting.simulator._poptorch_data import PoptorchData, parse


def test_data_survive_being_serialized():
    data = PoptorchData("1", "inputs", random_seed=3, rng_state=[3, 4])

    assert parse(data.serialize(), "1") == data


def test_a_file_without_its_model_has_none_of_the_three():
    data = PoptorchData("1", "inputs")

    assert (data.training, data.model, data.optimizer) == (None, None, None)


def test_another_version_is_refused():
    with pytest.raises(AssertionError, match="created with version: 1 and this is version 2"):
        parse(PoptorchData("1", "inputs").serialize(), "2")


def test_inputs_are_needed():
    with pytest.raises(AssertionError, match="Executable inputs are missing"):
        parse(PoptorchData("1", None).serialize(), "1")


def test_anything_else_is_refused():
    with pytest.raises(AssertionError, match="of type <class 'list'>"):
        parse(pickle.dumps([]), "1")
