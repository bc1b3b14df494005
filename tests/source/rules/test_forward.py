"""What `forward` may not do, and what looks like it."""

from __future__ import annotations

import textwrap

import pytest


def write(body: str) -> str:
    lines = textwrap.indent(textwrap.dedent(body).strip("\n"), "        ")
    return f"""
import random
import torch
import torch.nn.functional as F
from data import loader
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 3)
        self.register_buffer("mean", torch.zeros(3))
    def forward(self, x, mask=None):
{lines}
model = Model()
for x, y in loader:
    model(x)
"""


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("return self.net(x) * x.mean().item()", "C001"),
        ("return self.net(x) * float(x.sum())", "C001"),
        ("return [v for v in self.net(x).tolist()]", "C001"),
        ("return self.net(x).detach().numpy()", "C001"),
        ("return self.net(x)[torch.nonzero(x[:, 0])]", "C002"),
        ("return torch.masked_select(x, x > 0)", "C002"),
        ("return torch.unique(x)", "C002"),
        ("return self.net(x).cpu()", "C004"),
        ("return self.net(x).to('cpu')", "C004"),
        ("return self.net(x) + torch.zeros(3)", "C011"),
        ("return self.net(x) * random.random()", "C020"),
    ],
)
def test_a_line_of_forward_that_a_static_graph_cannot_hold(find, line, code):
    assert find(write(line)) == [f"{code}:11"]


@pytest.mark.parametrize(
    "line",
    [
        "return self.net(x) * float(x.shape[0])",
        "return self.net(x) + torch.zeros(3, device=x.device)",
        "return self.net(x) + torch.zeros(3).to(x.device)",
        "return self.net(x) + torch.zeros_like(x[:, :3]) + x.new_ones(3)",
        "return torch.where(x > 0, x, -x)",
        "return self.net(x).masked_fill(x[:, :3] > 0, 0.0)",
        "return self.net(x)[:, :2]",
        "return self.net(x) * torch.rand_like(x[:, :3])",
    ],
)
def test_a_line_of_forward_that_a_static_graph_can_hold(find, line):
    assert find(write(line)) == []


def test_a_branch_on_values_is_one_and_a_branch_on_what_is_there_is_none(find):
    body = """
        if mask is not None:
            x = x * mask
        if self.training and x.size(0) > 1:
            x = x + 1
        if x.sum() > 0:
            x = -x
        return self.net(x)
    """

    assert find(write(body)) == ["C001:15"]


def test_a_mask_that_selects_is_one_and_a_mask_that_assigns_is_none(find):
    body = """
        keep = x[:, 0] > 0
        out = self.net(x)
        out[keep] = 0
        return out[keep]
    """

    assert find(write(body)) == ["C002:14"]


def test_an_input_changed_in_place_is_one_and_a_value_of_forward_is_none(find):
    body = """
        x += 1
        h = self.net(x)
        h += 1
        h.clamp_(0)
        return h
    """

    assert find(write(body)) == ["C026:11"]


def test_a_buffer_assigned_anew_is_one_for_poptorch_alone_and_one_changed_in_place_is_none(find):
    body = """
        h = self.net(x)
        self.mean = 0.9 * self.mean + 0.1 * h.mean(0)
        self.mean.copy_(h.mean(0))
        return h
    """

    vendors = write(body).replace("model(x)", "port(x)").replace("for x", "port = poptorch.trainingModel(model)\nfor x")
    assert find(write(body)) == []
    assert find(vendors.replace("import random", "import poptorch")) == ["C006:12"]


def test_a_printed_shape_is_no_printed_tensor(find):
    body = """
        print(x.shape)
        print(x)
        return self.net(x)
    """

    assert find(write(body)) == ["C010:12"]


def test_questions_to_a_tensor_that_python_answers_read_no_values(find):
    program = """
        import torch
        class Net(torch.nn.Module):
            def forward(self, x, y: int, z: str):
                if x.is_cuda or x.is_xpu or torch.is_complex(x) or x.is_contiguous() or y > 3 or z == "sum":
                    x = x + 1
                return self.inner(x, x.shape[0], len(z))
            def inner(self, x, height, width):
                return x if height > 3 and int(width) else -x
        Net()(torch.rand(4), 1, "mean")
    """

    assert find(program) == []


def test_an_inner_forward_that_is_given_what_nobody_knows_is_given_no_tensor(find):
    program = """
        import torch
        from geometry import measure
        class Inner(torch.nn.Module):
            def forward(self, x, size):
                return x if size > 3 else -x
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = Inner()
            def forward(self, x):
                if x.sum() > 3:
                    x = x + 1
                return self.inner(x, measure(3))
        Net()(open("x").read())
    """

    assert find(program) == ["C001:11"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("return torch.sparse.mm(x, self.net.weight)", "C017"),
        ("return self.net(x) @ x.to_sparse()", "C017"),
        ("return self.net(x).to(torch.float64)", "C044"),
        ("return self.net(x).double()", "C044"),
        ("return self.net(x) + torch.ones_like(x, dtype=torch.double)", "C044"),
    ],
)
def test_a_kind_of_tensor_that_the_device_does_not_have(find, line, code):
    assert find(write(line)) == [f"{code}:11"]


def test_what_goes_into_the_model_is_of_its_kinds(find):
    head = "import torch\nfrom data import X\nmodel = torch.nn.Linear(4, 3)\n"

    assert find(head + "A = torch.sparse_coo_tensor(X, X, (4, 4))\nmodel(A)\n") == ["C017:4"]
    assert find(head + "model.double()\n") == ["C044:4"]
    assert find(head + "A = torch.sparse_coo_tensor(X, X, (4, 4))\nmodel(A.to_dense())\n") == []
    assert find(head + "n = (model(X) > 0).double().mean()\nA = X.to_sparse()\n") == []


def test_a_mask_by_its_name_is_a_guess(find):
    program = """
        import torch
        from torch import nn
        from data import data
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(9):
            out = model(data.x)
            nn.functional.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
            optimizer.step()
    """

    assert "C002:8" in find(program)


def test_nothing_is_known_of_a_forward_of_keywords_alone(find):
    program = """
        from torch import nn
        class Net(nn.Module):
            def forward(*args, x):
                return x > 0
    """

    assert find(program) == []
