"""A program comes back from a file as it was, or not at all."""

from __future__ import annotations

import hashlib
import json
import math
import operator
from contextlib import suppress

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

from porting.engines.compiled.call_layout import TensorSpec
from porting.engines.compiled.program_file import ProgramFileError, read_program, write_program
from porting.engines.compiled.programs import Program

aten = torch.ops.aten


def program_of(function, *arguments, **facts):
    module = make_fx(function, tracing_mode="real")(*arguments)
    specs = tuple(TensorSpec.of(value, name=f"input:{index}:") for index, value in enumerate(arguments))
    return Program(role="step", module=module, arguments=specs, num_results=1, **facts)


def program_of_call(target, *args, **kwargs):
    """Make a program of one operator on a vector of three numbers."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    node = graph.call_function(target, (x, *args), kwargs)
    graph.output((node,))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    return Program("step", module, (TensorSpec("input:0:", (3,), (1,), torch.float32),), 1)


def training_step(weight, x, y):
    leaf = weight.detach().requires_grad_()
    with torch.enable_grad():
        loss = torch.nn.functional.cross_entropy(x @ leaf, y)
        (gradient,) = torch.autograd.grad(loss, [leaf])
    weight.copy_(weight - 0.1 * gradient)
    return (loss.detach(),)


def step_arguments():
    return [torch.randn(4, 3), torch.randn(8, 4), torch.randint(0, 3, (8,))]


def sealed(content, *, version=2):
    digest = hashlib.sha256(content).hexdigest()
    return f"porting-program {version} length={len(content)} sha256={digest}\n".encode() + content


@pytest.fixture
def file(tmp_path):
    return tmp_path / "step.program"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "step.program"
    write_program(program_of(training_step, *step_arguments()), path)
    return path.read_bytes()


# -- the way there and back


def test_a_program_from_a_file_computes_the_same(file):
    arguments = step_arguments()
    program = program_of(training_step, *step_arguments())
    write_program(program, file)
    copies = [value.clone() for value in arguments]

    (loss,) = read_program(file).module(*copies)

    (expected,) = program.module(*arguments)
    assert torch.equal(loss, expected)
    assert all(map(torch.equal, copies, arguments))


def test_the_facts_of_a_program_come_back(file):
    program = program_of(lambda x: (x + 1,), torch.randn(2, 3).t(), has_halves=True)
    write_program(program, file)

    found = read_program(file)

    assert (found.role, found.arguments) == (program.role, program.arguments)
    assert (found.num_results, found.has_halves) == (1, True)


def test_writing_what_was_read_gives_the_same_file(file, written):
    file.write_bytes(written)

    write_program(read_program(file), file)

    assert file.read_bytes() == written


def test_a_program_that_holds_a_tensor_is_not_written(file):
    program = program_of_call(aten.add.Tensor, 1.0)
    program.module.register_buffer("table", torch.ones(3))
    with program.module.graph.inserting_before(program.module.graph.output_node()):
        program.module.graph.create_node("get_attr", "table")

    with pytest.raises(ProgramFileError, match="holds `table`"):
        write_program(program, file)


@pytest.mark.parametrize(
    "call",
    [
        (aten.add.Tensor, math.inf),
        (aten.mul.Tensor, -math.inf),
        (aten.clamp.default, None, 0.5),
        (aten.sum.dim_IntList, [0], True),
        (aten.slice.Tensor, 0, 0, 9223372036854775807),
    ],
    ids=["inf", "-inf", "None", "list", "large number"],
)
def test_arguments_of_operators_come_back(file, call):
    program = program_of_call(*call)
    write_program(program, file)

    (found,) = read_program(file).module(torch.ones(3))

    (expected,) = program.module(torch.ones(3))
    assert torch.equal(found, expected)


_plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.complex_numbers()
_torch_values = st.sampled_from(
    [torch.float16, torch.int64, torch.strided, torch.channels_last, torch.device("cpu"), torch.device("cuda:1")]
)
_values = st.recursive(
    _plain | _torch_values,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.builds(slice, inner, inner, inner),
    max_leaves=8,
)


@pytest.mark.slow
@hypothesis.given(_values)
def test_any_argument_comes_back(tmp_path_factory, value):
    file = tmp_path_factory.mktemp("program") / "step.program"
    write_program(program_of_call(aten.add.Tensor, value), file)

    node = next(node for node in read_program(file).module.graph.nodes if node.op == "call_function")

    expected = program_of_call(aten.add.Tensor, value).module.graph
    original = next(node for node in expected.nodes if node.op == "call_function")
    assert repr(node.args[1:]) == repr(original.args[1:])  # repr: not-a-number equals itself


# -- what no file holds


def test_a_program_with_a_python_function_is_not_written(file):
    with pytest.raises(ProgramFileError, match="calls `add`, which is no operator of torch"):
        write_program(program_of_call(operator.add, 1), file)

    assert not file.exists()


def test_a_program_with_an_object_as_an_argument_is_not_written(file):
    with pytest.raises(ProgramFileError, match="of the type `range`"):
        write_program(program_of_call(aten.sum.dim_IntList, range(1)), file)


# -- damage


@hypothesis.given(st.data())
def test_a_file_with_a_changed_byte_is_refused(tmp_path_factory, written, data):
    position = data.draw(st.integers(0, len(written) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != written[position]))
    file = tmp_path_factory.mktemp("program") / "step.program"
    file.write_bytes(written[:position] + bytes([other]) + written[position + 1 :])

    with pytest.raises(ProgramFileError):
        read_program(file)


@hypothesis.given(st.data())
def test_a_file_that_is_cut_off_is_refused(tmp_path_factory, written, data):
    file = tmp_path_factory.mktemp("program") / "step.program"
    file.write_bytes(written[: data.draw(st.integers(0, len(written) - 1))])

    with pytest.raises(ProgramFileError):
        read_program(file)


_json = st.recursive(_plain.filter(lambda value: not isinstance(value, complex)), lambda inner: st.lists(inner))


@hypothesis.given(st.data())
def test_a_listing_with_anything_in_the_place_of_a_part_is_refused_or_a_program(tmp_path_factory, written, data):
    listing = json.loads(written.partition(b"\n")[2])
    place = data.draw(st.sampled_from([*listing, *range(len(listing["nodes"]))]))
    if isinstance(place, int):
        key = data.draw(st.sampled_from(sorted(listing["nodes"][place])))
        listing["nodes"][place][key] = data.draw(_json)
    else:
        listing[place] = data.draw(_json)
    file = tmp_path_factory.mktemp("program") / "step.program"
    file.write_bytes(sealed(json.dumps(listing).encode()))

    with suppress(ProgramFileError):
        read_program(file)


def test_a_file_of_another_version_is_refused_with_both_versions(file):
    file.write_bytes(sealed(b"{}", version=3))

    with pytest.raises(ProgramFileError, match="it has version 3 of the format, this is version 2"):
        read_program(file)


def test_another_file_is_refused(file):
    file.write_bytes(b"PK\x03\x04")

    with pytest.raises(ProgramFileError, match="it is no program file"):
        read_program(file)


def test_a_missing_file_is_missing(file):
    with pytest.raises(FileNotFoundError):
        read_program(file)


# -- nothing of a file is executed


def read_changed(file, written, change):
    listing = json.loads(written.partition(b"\n")[2])
    change(listing)
    file.write_bytes(sealed(json.dumps(listing).encode()))
    return read_program(file)


@pytest.mark.parametrize("name", ["x=print(1)", "x):\n  import os\ndef f(", "class", "", "a b", "ｘ"])
def test_a_name_that_is_no_identifier_is_refused(file, written, name):
    def change(listing):
        listing["nodes"][0]["name"] = name

    with pytest.raises(ProgramFileError, match="is no name"):
        read_changed(file, written, change)


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "op:os.system",
        "op:builtins.eval.x",
        "op:aten.from_file.default",
        "op:aten.no_such.default",
        "op:aten.mm.__init__",
        "op:_os.x.y",
        "function:set_grad_enabled",
        "constant:none",
    ],
)
def test_an_operator_that_no_program_has_is_refused(file, written, target):
    def change(listing):
        next(node for node in listing["nodes"] if node["target"].startswith("op:"))["target"] = target

    with pytest.raises(ProgramFileError):
        read_changed(file, written, change)
