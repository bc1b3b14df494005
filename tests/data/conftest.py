"""What tests of data share."""

import random

import numpy as np
import pytest
import torch


@pytest.fixture
def random_states():
    """A function that says where the random streams of torch, NumPy and Python stand."""

    def states():
        return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()

    return states
