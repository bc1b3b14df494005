"""A tensor is made where another one is if a program that runs stays the same by it, on one device and on two."""

from __future__ import annotations

import ast

import pytest
import torch

from porting.diagnostics import Place
from porting.source.patches.homes import find_home
from porting.source.patches.uses import SourceTree

MODEL = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.drop = nn.Embedding(9, 4), nn.Dropout(0.5)
        self.fc = nn.Linear(4, 4)
        self.embed = nn.Embedding(9, 4)
        self.rnn = nn.LSTM(4, 4, batch_first=True)
        self.cell = nn.GRUCell(4, 4)
        self.shift = nn.Parameter(torch.zeros(4))
        self.scale = 2.0

    def count(self, x):
        return x.numpy().sum()

"""

PROVEN = {
    # a name: how `forward` begins, its lines, and the tensor whose device is named
    "a sum": ("x", ["return x.sum(0) + torch.ones(4)"], "x"),
    "noise": ("x", ["return x + torch.randn(x.size())"], "x"),
    "noise by a name": ("x", ["noise = torch.randn(x.size(0), 3, 4) * 0.1", "return self.fc(x + noise)"], "x"),
    "noise of a normal": (
        "mu, log",
        ["std = log.mul(0.5).exp_()", "noise = torch.randn(*mu.size())", "return mu + std * noise"],
        "log",
    ),
    "a state": (
        "x",
        [
            "h = torch.zeros(1, x.size(0), 4)",
            "c = torch.zeros(1, x.size(0), 4)",
            "out, (_, _) = self.rnn(x, (h, c))",
            "return out[:, -1] + self.shift",
        ],
        "x",
    ),
    "steps": (
        "x",
        [
            "outputs = []",
            "h = torch.zeros(x.size(0), 4)",
            "for part in x.split(1, dim=1):",
            "    h = self.cell(part.squeeze(1), h)",
            "    outputs += [self.fc(h)]",
            "return torch.cat(outputs, dim=1)",
        ],
        "x",
    ),
    "an index": ("x, y", ["rows = y.unsqueeze(1)", "return rows[torch.arange(2)[:, None], 0], x.sum()"], "rows"),
    "a written part": ("x", ["y = x.sum(0)", "y[torch.arange(2), 0] = 1.0", "return y"], "y"),
    "positions": (
        "x",
        [
            "pos = torch.arange(3)",
            "pos = pos.unsqueeze(0).expand(x.size(0), 3)",
            "return self.fc(x) + self.embed(pos)",
        ],
        "x",
    ),
    "a move of its own": ("x", ["scale = torch.ones(4)", "return x.float() * scale.to(x.device)"], "x"),
    "lengths of the host": (
        "x, lengths",
        ["mask = torch.arange(3) < lengths.unsqueeze(1)", "return x.float() * mask.unsqueeze(2).to(x.device)"],
        "lengths",
    ),
    "a method": ("x, y", ["rows = torch.arange(4).long()", "return y.sum(), x.sum(0).eq(rows.expand(3, 4))"], "x"),
    "joined": ("x", ["return torch.cat([x.float(), torch.rand(2, 3, 4)], 1)"], "x"),
}


def write(begin, lines, factory_tensor=""):
    """Write the program, with the device of a tensor named in its first factory if there is one."""
    body = "\n".join(f"        {line}" for line in lines)
    if factory_tensor:
        body = name_device(body, factory_tensor)
    return f"{MODEL}    def forward(self, {begin}):\n{body}\n"


def name_device(body, tensor):
    """Name the device in each factory, each on a line of its own."""
    changed = []
    for line in body.split("\n"):
        call = next((f"torch.{name}(" for name in FACTORIES if f"torch.{name}(" in line), None)
        changed.append(line.replace(call, f"{call[:-1]}_on({tensor}.device, ") if call is not None else line)
    return "\n".join(changed)


FACTORIES = ("zeros", "ones", "arange", "randn", "rand")


def find_first(program):
    """Find the home of the first factory of `forward`."""
    head, _, tail = program.partition("    def forward")
    found = min((tail.index(f"torch.{name}("), name) for name in FACTORIES if f"torch.{name}(" in tail)
    before = f"{head}    def forward{tail[: found[0]]}"
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    source = SourceTree(program.encode())
    call = next(node for node in ast.walk(source.tree) if is_factory(node, line, column))
    return find_home(source, Place("net.py", line, column, call.end_lineno, call.end_col_offset + 1))


def is_factory(node, line, column):
    """Tell the call of a function at a place, not of a method of its result."""
    is_there = isinstance(node, ast.Call) and (node.lineno, node.col_offset + 1) == (line, column)
    return is_there and node.func.attr in FACTORIES


def run(program, device):
    """Run the model with tensors on a device, lengths on the host; tell where the results are, and what they are."""
    for name in FACTORIES:
        # the factories that name a device
        program = program.replace(f"torch.{name}_on(", f"make_on(torch.{name}, ")
    names = {}
    exec(f"def make_on(make, device, *sizes):\n    return make(*sizes, device=device)\n\n\n{program}", names)
    torch.manual_seed(0)
    model = names["Net"]()
    parameters = program.partition("def forward(self, ")[2].partition(")")[0].split(", ")
    given = [torch.tensor([1, 3]) if name == "lengths" else torch.rand(2, 3, 4).to(device) for name in parameters]
    results = model.to(device)(*given)
    results = results if isinstance(results, tuple) else (results,)
    return [str(result.device) for result in results], [result.tolist() for result in results if device == "cpu"]


@pytest.mark.parametrize("name", sorted(PROVEN))
def test_a_factory_names_the_device_of_a_tensor_it_meets(name):
    begin, lines, tensor = PROVEN[name]

    home = find_first(write(begin, lines))

    assert home is not None
    assert (home.tensor, home.is_proven) == (tensor, True)


@pytest.mark.parametrize("name", sorted(PROVEN))
def test_a_program_computes_the_same_when_the_device_is_named(name):
    begin, lines, tensor = PROVEN[name]

    assert run(write(begin, lines, tensor), "cpu") == run(write(begin, lines), "cpu")


@pytest.mark.parametrize("name", sorted(PROVEN))
def test_on_another_device_it_runs_where_it_ran_and_gives_results_where_they_were(name):
    begin, lines, tensor = PROVEN[name]
    try:
        before = run(write(begin, lines), "meta")
    except RuntimeError:
        # two devices met, and now it runs on one
        before = None

    after = run(write(begin, lines, tensor), "meta")

    assert before is None or after == before


@pytest.mark.parametrize(
    ("begin", "lines"),
    [
        pytest.param("t, x", ["return self.fc(x) + torch.ones(4) * t"], id="what may be a number"),
        pytest.param("x", ["y = x.cpu()", "return y + torch.ones(4)"], id="what has been moved"),
        pytest.param("x", ["return self.fc(x), torch.ones(3)"], id="what the caller gets as it is"),
        pytest.param("x", ["y = torch.ones(4)", "return x.sum() + float(y.numpy().sum())"], id="what NumPy gets"),
        pytest.param("x", ["y = torch.zeros(4).uniform_()", "return self.fc(x), y * 2"], id="what is random"),
        pytest.param("x", ["return x.float()[torch.rand(2).argsort()]"], id="a random index"),
        pytest.param("x", ["return self.fc(x), torch.arange(3) * self.table"], id="a table of the host"),
        pytest.param("x", ["self.register_buffer('kept', torch.ones(3))", "return self.fc(x)"], id="what is kept"),
        pytest.param("x", ["self.kept = torch.ones(3)", "return self.fc(x)"], id="an attribute"),
        pytest.param("x", ["return self.fc(x) + self.count(torch.ones(3))"], id="what a method gets"),
        pytest.param("x", ["kept = self.drop(torch.ones(4))", "return self.fc(x), kept"], id="a random layer"),
        pytest.param("x", ["global y", "y = torch.ones(4)", "return self.fc(x) + y"], id="a name of the module"),
        pytest.param(
            "x",
            ["sizes = torch.arange(x.dim()) * torch.arange(x.dim())", "return self.fc(x)[tuple(sizes.tolist())]"],
            id="two of a line that meet",
        ),
        pytest.param(
            "x",
            ["h, c = torch.zeros(1, 2, 4), torch.zeros(1, 2, 4)", "return self.rnn(x.float(), (h, c))"],
            id="two of a line of which one is told",
        ),
    ],
)
def test_what_a_move_might_change_is_not_proven(begin, lines):
    home = find_first(write(begin, lines))

    assert home is None or not home.is_proven


@pytest.mark.parametrize(
    ("begin", "lines"),
    [
        pytest.param("x", ["x = x.tolist()", "return torch.ones(4)"], id="a name that is bound again"),
        pytest.param("x", ["x = x.unbind(0)", "return x[0] + torch.ones(4)"], id="several of a name"),
        pytest.param("x=None", ["return x.sum(0) + torch.ones(4)"], id="what may be missing"),
        pytest.param("x", ["if x is not None:", "    return x.sum(0) + torch.ones(4)"], id="what is asked for"),
        pytest.param("x", ["x = x.sum(0) if isinstance(x, list) else x", "return x + torch.ones(4)"], id="a list"),
        pytest.param("x, y=torch.ones(4)", ["return x.sum(0) + y"], id="a default"),
        pytest.param("x", ["return (lambda x: x + torch.ones(4))(x.sum(0))"], id="a lambda"),
        pytest.param("x", ["return x.sum(0) + torch.arange(4, out=self.kept)"], id="where it is told already"),
        pytest.param("x", ["return x.sum(0) + torch.rand(4, generator=self.draws)"], id="a generator of the host"),
        pytest.param("n", ["return self.fc.weight[n - 1] + torch.zeros(4)"], id="a number"),
        pytest.param("x", ["return self.device, x + torch.zeros(4)"], id="the model itself"),
    ],
)
def test_a_function_without_a_tensor_for_sure_names_none(begin, lines):
    assert find_first(write(begin, lines)) is None


def test_a_mean_and_a_deviation_draw_where_they_are():
    program = write("x", ["return x + torch.normal(x, x.abs())"])
    place = Place("net.py", program.count("\n"), len("        return x + ") + 1)

    assert find_home(SourceTree(program.encode()), place) is None
