"""A name holds a tensor if whatever it is bound to is one; what an expression is made of follows it."""

from __future__ import annotations

import ast

import pytest

from porting.source.patches.tensors import Tensors


def make(begin, *lines, modules=("fc",), last_line=float("inf"), name="forward"):
    tree = ast.parse("\n".join([f"def {name}(self, {begin}):", *(f"    {line}" for line in lines)]))
    return Tensors(tree.body[0], modules=frozenset(modules), last_line=last_line)


def find_roots(tensors, text):
    return tensors.find_roots(ast.parse(text, mode="eval").body)


@pytest.mark.parametrize(
    ("begin", "lines"),
    [
        ("x: torch.Tensor", ["return 1"]),
        ("x: Tensor", ["return 1"]),
        ("x", ["return x.unsqueeze(0)"]),
        ("x", ["return F.relu(x)"]),
        ("x", ["return self.fc(x)"]),
        ("x", ["return y.type_as(x)"]),
        ("x", ["x = x.view(-1)"]),
        ("x", ["x = self.fc(x)"]),
        ("x", ["x = torch.relu(x) * 2"]),
        ("x", ["x += 1", "return x.sum()"]),
    ],
)
def test_a_parameter_is_a_tensor_by_its_annotation_or_its_use(begin, lines):
    assert make(begin, *lines).parameters == ["x"]


@pytest.mark.parametrize(
    ("begin", "lines"),
    [
        ("x", ["return x"]),
        ("x", ["return x + torch.zeros(3)"]),
        ("x: Optional[Tensor]", ["return x.sum()"]),
        ("x: int", ["return x.sum()"]),
        ("x=None", ["return x.sum()"]),
        ("x", ["return (lambda x: x.sum())(3)"]),
        ("x", ["if x is None:", "    return 0", "return x.sum()"]),
        ("x", ["return x.sum() if isinstance(x, Tensor) else x"]),
        ("x", ["x = list(x)", "return x.sum()"]),
        ("x", ["for x in range(3):", "    x.sum()"]),
        ("*x", ["return x.sum()"]),
    ],
)
def test_what_may_be_anything_else_is_none(begin, lines):
    assert make(begin, *lines).parameters == []


def test_a_shape_tells_a_tensor_in_forward_alone():
    assert make("x", "return x.shape").parameters == ["x"]
    assert make("x", "return x.shape", name="score").parameters == []


def test_what_is_bound_behind_a_line_does_not_count():
    assert make("x", "y = x.sum()", "x = [x]", last_line=2).parameters == ["x"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", {"x"}),
        ("-x.data[0] * 2 + 1", {"x"}),
        ("x.view(3) @ y", {"x", "y"}),
        ("torch.cat([x, 1])", set()),
        ("rows", {"rows", "x"}),
        ("part", {"part", "x"}),
        ("made", {"made"}),
        ("scale.to(x.device)", {"x"}),
        ("scale.type_as(y)", {"y"}),
        ("x.to(torch.float16)", {"x"}),
        ("x.to(dtype=y.dtype)", {"x"}),
        ("x.to(device)", None),
        ("self.fc(x)", {"x"}),
        ("self.other(x)", None),
        ("x.cpu()", None),
        ("x.max(0)", None),
        ("x.max(0)[0]", {"x"}),
        ("x.shape", None),
        ("several", None),
        ("not x", None),
        ("3", None),
    ],
)
def test_the_roots_of_an_expression_are_the_tensors_it_is_made_of(text, expected):
    tensors = make(
        "x: Tensor, y: Tensor, scale",
        "rows = x.view(-1)",
        "rows = rows + 1",
        "made = torch.zeros(3)",
        "several = self.other(x)",
        "for part in x.split(1):",
        "    pass",
    )

    assert find_roots(tensors, text) == expected


@pytest.mark.parametrize(
    "text", ["3", "x.size(0)", "len(x)", "x.shape[0] * 2", "b", "n", "math.pi", "torch.float", "(b, n)"]
)
def test_shapes_and_numbers_are_no_tensors(text):
    tensors = make("x: Tensor", "b, c = x.shape", "n, m = 1, [x]", "k = k + 1")

    assert tensors.is_number(ast.parse(text, mode="eval").body)


@pytest.mark.parametrize("text", ["x", "m", "k", "y", "self.scale", "x.sum()"])
def test_other_values_may_be_tensors(text):
    tensors = make("x: Tensor, y", "n, m = 1, [x]", "k = k + 1")

    assert not tensors.is_number(ast.parse(text, mode="eval").body)
