"""A tensor that training executors own fetches what was trained before it is used."""

from __future__ import annotations

import copy
import gc
import pickle

import pytest
import torch
from torch import nn

from porting.simulator._weights.weight_owners import (
    Owner,
    fetch,
    find_plain_class,
    list_owners,
    make_owned_class,
    make_plain,
)


class Executor:
    """Counts how often its weights are asked for."""

    def __init__(self):
        self.fetches = 0

    def copyWeightsToHostIfNeeded(self):
        self.fetches += 1


@pytest.fixture
def executor():
    return Executor()


@pytest.fixture
def owner(executor):
    owner = Owner(executor)
    owner.is_ahead = True
    return owner


def make_owned(plain, *owners):
    plain.__class__ = make_owned_class(type(plain), owners)
    return plain


@pytest.mark.parametrize("use", [lambda t: t + 1, lambda t: t.sum(), lambda t: t.data, torch.exp, repr])
def test_any_use_fetches_first(executor, owner, use):
    use(make_owned(nn.Parameter(torch.ones(2)), owner))

    assert executor.fetches > 0


def test_nothing_is_fetched_from_an_executor_that_has_not_trained(executor, owner):
    owner.is_ahead = False

    fetch((owner,))

    assert executor.fetches == 0


def test_a_parameter_is_made_of_an_owned_one_in_the_same_memory(executor, owner):
    owned = make_owned(nn.Parameter(torch.ones(2)), owner)

    made = nn.Parameter(owned, requires_grad=False)

    assert executor.fetches > 0
    assert isinstance(made, nn.Parameter)
    assert not made.requires_grad
    assert made.data_ptr() == owned.data_ptr()
    assert type(owned.detach()) is torch.Tensor


def test_asking_for_the_class_fetches_nothing(executor, owner):
    tensor = make_owned(nn.Parameter(torch.ones(2)), owner)

    assert isinstance(tensor, nn.Parameter)
    assert find_plain_class(tensor) is nn.Parameter
    assert executor.fetches == 0


def test_a_class_is_made_once_for_the_same_owners(owner):
    assert make_owned_class(nn.Parameter, (owner,)) is make_owned_class(nn.Parameter, (owner,))
    assert make_owned_class(nn.Parameter, ()) is nn.Parameter


def test_an_executor_that_is_gone_owns_nothing():
    executor = Executor()
    tensor = make_owned(torch.ones(2), Owner(executor))
    assert len(list_owners(tensor)) == 1

    del executor
    gc.collect()

    assert list_owners(tensor) == ()


def test_the_plain_tensor_has_the_same_memory_unless_a_copy_is_wanted(owner):
    tensor = make_owned(nn.Parameter(torch.ones(2)), owner)

    same, copied = (make_plain(tensor, copy_data=wanted) for wanted in (False, True))

    assert type(same) is type(copied) is nn.Parameter
    assert same.data_ptr() == tensor.data_ptr() != copied.data_ptr()


def test_a_deep_copy_is_owned_and_a_pickled_one_is_not(owner):
    tensor = make_owned(nn.Parameter(torch.ones(2)), owner)

    assert type(copy.deepcopy(tensor)) is type(tensor)
    assert type(pickle.loads(pickle.dumps(tensor))) is nn.Parameter
