"""A port compiles before the loop where a loader's batches are what it is called with, and trains as without."""

from __future__ import annotations

import pytest

from tests.convert.training_programs import HEAD, convert_idiomatic, train_all_ways

DATA = """\
data = torch.utils.data.TensorDataset(torch.randn(20, 4), torch.randint(0, 3, (20,)))
loader = torch.utils.data.DataLoader(data, 8, shuffle=True)
"""
STEP = """\
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
"""
WITH = {
    "a batch": "for epoch in range(2):\n    for x, y in loader:\n" + STEP,
    "a number": "for epoch in range(2):\n    for number, (x, y) in enumerate(loader):\n" + STEP,
    "moves": "for epoch in range(2):\n    for x, y in loader:\n        x, y = x.to(device), y.to(device)\n" + STEP,
    "a function": "def train():\n    for x, y in loader:\n" + STEP + "for epoch in range(2):\n    train()\n",
    "a parameter": "def train(batches):\n    for x, y in batches:\n"
    + STEP
    + "for epoch in range(2):\n    train(loader)\n",
}
WITHOUT = {
    "another shape": "for epoch in range(2):\n    for x, y in loader:\n        x = x.view(-1, 4)\n" + STEP,
    "another order": "for epoch in range(2):\n    for y, x in loader:\n        x, y = y, x\n" + STEP,
    "an iterator": "for epoch in range(2):\n    for x, y in iter(loader):\n" + STEP,
    "a loader in each epoch": (
        "for epoch in range(2):\n    again = torch.utils.data.DataLoader(data, 8)\n    for x, y in again:\n" + STEP
    ),
}
HEAD = HEAD.replace("torch.manual_seed(0)\n", 'torch.manual_seed(0)\ndevice = torch.device("cpu")\n')


@pytest.mark.parametrize("name", WITH)
def test_a_port_is_compiled_before_the_loop_over_a_loader_and_trains_the_same(name, tmp_path, monkeypatch):
    text = convert_idiomatic(tmp_path, HEAD + DATA + WITH[name])

    before, loop = text.split("for epoch in range(2)")
    assert "    model.warm_up(loader)\n" in before
    train_all_ways(tmp_path, HEAD + DATA + WITH[name], monkeypatch)


@pytest.mark.parametrize("name", WITHOUT)
def test_what_is_no_batch_of_a_known_loader_compiles_with_the_first_call(name, tmp_path):
    assert "warm_up" not in convert_idiomatic(tmp_path, HEAD + DATA + WITHOUT[name])


def test_a_loader_that_is_made_behind_the_port_moves_it_behind_itself(tmp_path):
    text = convert_idiomatic(tmp_path, HEAD + "print('ready')\n" + DATA + WITH["a batch"])

    assert text.index("loader = ") < text.index("to_ipu(") < text.index("model.warm_up(loader)")
