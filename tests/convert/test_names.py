"""Names are counted as they are written: what a statement reads and assigns, and what a loss reads of a batch."""

from __future__ import annotations

import ast

import pytest

from porting.convert.names import collect_reads, collect_writes, iter_chains, iter_units, substitute


def parse(text):
    return ast.parse(text).body[0]


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("loss = f(output, target)", {"f", "output", "target"}),
        ("loss += g(x)", {"g", "x", "loss"}),
        ("y = [h(one) for one in rows]", {"h", "rows"}),
        ("y = map(lambda row: row + k, rows)", {"k", "map", "rows"}),
        ("for i in range(n): total += x[i]", {"range", "n", "total", "x"}),
    ],
)
def test_what_a_statement_reads_is_listed_without_its_own_names(text, reads):
    assert collect_reads(parse(text)) == reads


@pytest.mark.parametrize(
    ("text", "writes"),
    [
        ("a, (b, c) = f(x)", {"a", "b", "c"}),
        ("rows.append(x)", {"rows"}),
        ("x.clamp_(0)", {"x"}),
        ("table[key].value = 3", {"table"}),
        ("x.__init__()", set()),
        ("for i in range(n): total += i", {"total"}),
    ],
)
def test_what_works_in_place_writes_its_name(text, writes):
    assert collect_writes(parse(text)) == writes


def test_units_go_through_with_blocks_alone():
    block = ast.parse("a = 1\nwith f():\n    b = 2\n    if c:\n        d = 3").body
    assert [type(one).__name__ for one in iter_units(block)] == ["Assign", "Assign", "If"]


def test_a_container_gives_its_parts_and_a_tensor_itself():
    tree = ast.parse("loss = f(output.view(-1), batch.text.t(), pair['y'], target.shape[0], target[mask])")
    found = [ast.unparse(one) for one in iter_chains(tree, {"batch", "pair", "target", "output"})]
    assert found == ["output", "batch.text", "pair['y']", "target", "target"]


def test_substitution_changes_what_is_read_and_keeps_the_rest():
    assert substitute(parse("loss = crit(model(x), y).mean()"), {"model(x)": "output", "crit": "F.mse_loss"}) == [
        "loss = F.mse_loss(output, y).mean()"
    ]
