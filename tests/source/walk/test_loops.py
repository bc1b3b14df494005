"""Loops: what they go through, and what one round hands to the next."""

from __future__ import annotations

from typing import List

import pytest

from porting.source import Facts, Kind

START = """
import torch
from torch import nn
from torch.utils.data import DataLoader
from tqdm import tqdm
net = nn.Linear(3, 2)
criterion = nn.MSELoss()
loader = DataLoader(data, batch_size=2)
x = torch.zeros(2, 3)
"""


def kinds_of_loops(facts: Facts) -> List[str]:
    (call,) = [call for call in facts.calls if call.name == "mark"]
    return [loop.kind.value for loop in call.where.loops]


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        ("for epoch in range(3):", "epochs"),
        ("for e in range(args.num_epochs):", "epochs"),
        ("while epoch < 3:", "epochs"),
        ("for a, b in loader:", "batches"),
        ("for i, (a, b) in enumerate(tqdm(loader), 1):", "batches"),
        ("for a, b in zip(loader, loader):", "batches"),
        ("for step in range(100):", "batches"),
        ("for it in range(num_iters):", "batches"),
        ("for layer in layers:", "other"),
        ("for item in items:", "other"),
        ("for split in ['train', 'val']:", "other"),
    ],
)
def test_what_a_loop_goes_through(facts_of, head, kind):
    assert kinds_of_loops(facts_of(START + head + "\n    mark()\n")) == [kind]


def test_a_loop_that_steps_goes_through_batches(facts_of):
    facts = facts_of(START + "while True:\n    mark()\n    criterion(net(x), x).backward()\n")

    assert kinds_of_loops(facts) == ["batches"]


def test_a_loop_knows_its_loader(facts_of):
    facts = facts_of(START + "for i, batch in enumerate(tqdm(loader)):\n    mark()\n")
    (call,) = [call for call in facts.calls if call.name == "mark"]

    assert [one.kind for one in call.where.loops[0].objects] == [Kind.LOADER]


@pytest.mark.parametrize(
    "head",
    [
        "for batch in loader:",
        "for i, batch in enumerate(loader):",
        "for batch in tqdm(loader, desc='x'):",
        "for batch, other in zip(loader, range(3)):",
        "for batch, y in loader:",
        "for batch in iter(loader):",
    ],
)
def test_what_a_loader_yields_is_a_batch(facts_of, head):
    facts = facts_of(START + head + "\n    batch.cuda()\n")
    (call,) = [call for call in facts.calls if call.is_method("cuda")]

    assert {one.kind for one in call.receiver} == {Kind.BATCH}


def test_what_one_round_leaves_the_next_one_finds(facts_of):
    facts = facts_of(START + "out = None\nfor a in loader:\n    out.cuda()\n    out = net(a)\n")
    (call,) = [call for call in facts.calls if call.is_method("cuda")]

    assert {one.kind for one in call.receiver} == {Kind.OUTPUT}


def test_what_a_loop_leaves_when_it_breaks_is_known_after_it(facts_of):
    facts = facts_of(
        START + "out = None\nfor a in loader:\n    if a.any():\n        out = net(a)\n        break\nout.cuda()\n"
    )
    (call,) = [call for call in facts.calls if call.is_method("cuda")]

    assert {one.kind for one in call.receiver} == {Kind.OUTPUT}


def test_a_generator_yields_what_it_goes_through(facts_of):
    facts = facts_of(
        START
        + """
def log_every(iterable):
    for item in iterable:
        yield item

for a, b in log_every(loader):
    a.cuda()
"""
    )
    (call,) = [call for call in facts.calls if call.is_method("cuda")]

    assert {one.kind for one in call.receiver} == {Kind.BATCH}
    assert [loop.kind.value for loop in call.where.loops] == ["batches"]


def test_a_loop_around_one_over_a_loader_goes_through_epochs(facts_of):
    facts = facts_of(START + "while len(losses) < num_steps:\n    for a in loader:\n        mark()\n")

    assert kinds_of_loops(facts) == ["epochs", "batches"]


def test_a_loop_that_calls_a_model_goes_through_batches(facts_of):
    facts = facts_of(START + "for i in range(0, 100, 10):\n    mark()\n    net(data[i])\n")

    assert kinds_of_loops(facts) == ["batches"]
