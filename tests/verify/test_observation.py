"""An observation goes from one process to another, and begins with nothing."""

from __future__ import annotations

import pickle

import torch

from porting.diagnostics import Place
from porting.verify.observation import Observation, ObservedTraining, Task
from porting.verify.plain_runs import PLAIN, Perturbation


def test_a_task_is_that_of_plain_pytorch_unless_it_says_otherwise():
    task = Task("train.py", ["--epochs", "1"], num_steps=3, seed=0)

    assert (task.is_port, task.perturbation) == (False, PLAIN)


def test_a_task_and_its_observation_can_be_handed_over():
    task = Task("train.py", [], 3, 0, perturbation=Perturbation("rounded at random", rounding=1))
    places = {"loss": Place("train.py", 4)}
    training = ObservedTraining(shapes={"weight": (2,)}, rows={1: [torch.ones(2)]}, places=places)

    again, found = pickle.loads(pickle.dumps((task, Observation([training], "ValueError: no"))))

    assert again == task
    assert (found.error, found.trainings[0].places) == ("ValueError: no", places)
    assert torch.equal(found.trainings[0].rows[1][0], training.rows[1][0])


def test_no_two_trainings_share_what_they_keep():
    one, other = ObservedTraining(), ObservedTraining()

    one.record.losses[1] = [1.0]
    one.rows[1] = []

    assert (other.record.losses, other.rows) == ({}, {})
