"""What is collected of a program as a whole, in the order in which it would run."""

from __future__ import annotations

import random
import shutil
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from porting.source import Facts, Kind, collect_facts, read_programs
from porting.source.facts import LoopKind
from tests.counted_calls import count_calls

MNIST = """
import torch
import torch.nn.functional as F
from torch import nn, optim
from torchvision import datasets


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(784, 10)

    def forward(self, x):
        return F.log_softmax(self.fc(x), dim=1)


def train(args, model, device, train_loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()


def test(model, device, test_loader):
    model.eval()
    with torch.no_grad():
        for data, target in test_loader:
            output = model(data.to(device))
            pred = output.argmax(dim=1, keepdim=True)


def main():
    device = torch.device("cuda")
    train_loader = torch.utils.data.DataLoader(datasets.MNIST("data"), batch_size=64)
    test_loader = torch.utils.data.DataLoader(datasets.MNIST("data", train=False), batch_size=64)
    model = Net().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    for epoch in range(1, 15):
        train(None, model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)


if __name__ == "__main__":
    main()
"""


def collect(folder: Path, text: str) -> Facts:
    path = folder / "train.py"
    path.write_text(text)
    return collect_facts(read_programs([path]))


def test_the_objects_of_an_ordinary_training_are_found(tmp_path):
    facts = collect(tmp_path, MNIST)

    (model,) = [one for one in facts.list_program_objects(Kind.MODULE) if one.name == "train.Net"]
    (optimizer,) = facts.list_program_objects(Kind.OPTIMIZER)
    assert optimizer.parts[0].parts == (model,)
    assert [loader.name for loader in facts.list_program_objects(Kind.LOADER)] == ["torch.utils.data.DataLoader"] * 2
    assert not facts.is_ported


def test_a_step_in_a_function_stands_in_the_loops_that_lead_there(tmp_path):
    facts = collect(tmp_path, MNIST)

    (backward,) = [call for call in facts.calls if call.is_method("backward")]
    assert backward.is_on(Kind.LOSS)
    assert backward.where.function == "train.train"
    assert [loop.kind for loop in backward.where.loops] == [LoopKind.EPOCHS, LoopKind.BATCHES]
    assert not backward.where.in_evaluation


def test_a_validation_stands_under_no_grad_and_eval(tmp_path):
    facts = collect(tmp_path, MNIST)

    (guess,) = [call for call in facts.calls if call.is_method("argmax")]
    assert guess.is_on(Kind.OUTPUT)
    assert guess.where.without_gradients
    assert guess.where.in_evaluation


def test_facts_come_in_the_order_of_the_program(tmp_path):
    facts = collect(tmp_path, MNIST)

    orders = [call.order for call in facts.calls]
    assert orders == sorted(orders)
    names = [call.name for call in facts.calls]
    assert names.index("train.train") < names.index(".backward") < names.index("train.test")


def test_functions_that_nothing_calls_come_last(tmp_path):
    facts = collect(tmp_path, "def unused(model):\n    model.half()\nfirst()\n")

    assert [call.name for call in facts.calls] == ["first", ".half"]


def test_those_that_nothing_mentions_come_before_those_that_they_call_unseen(tmp_path):
    facts = collect(tmp_path, "def inner(model):\n    a(model)\ndef outer(model):\n    b()\n    call(inner)(model)\n")

    assert [call.name for call in facts.calls][:1] == ["b"]


def chain_functions(length: int) -> str:
    text = "def f0(x):\n    return x\n"
    for number in range(1, length):
        text += f"def f{number}(x):\n    return f{number - 1}(x) + f{number - 1}(x)\n"
    return text + f"f{length - 1}(1)\n"


def test_functions_that_call_each_other_twice_are_walked_once(tmp_path):
    short = count_calls(lambda: collect(tmp_path, chain_functions(30)))
    long = count_calls(lambda: collect(tmp_path, chain_functions(60)))

    assert long < 3 * short


@pytest.mark.parametrize(
    "text",
    [
        "x = " + " + ".join(["model(x)"] * 5000) + "\n",
        "x = " + "[" * 90 + "]" * 90 + "\n",
        "x = a" + ".b()" * 4000 + "\n",
        "".join("    " * depth + "if x:\n" for depth in range(90)) + "    " * 90 + "pass\n",
    ],
    ids=["sum", "lists", "chain", "ifs"],
)
def test_deeply_nested_programs_do_not_hide_the_rest(tmp_path, text):
    (tmp_path / "other.py").write_text(text)
    facts = collect(tmp_path, "import other\nmark()\ndef f(model):\n    import other\n    model.half()\n")

    assert [call.name for call in facts.calls if call.name in ("mark", ".half")] == ["mark", ".half"]


def make_long_program(num_lines: int) -> str:
    parts = [MNIST.partition("if __name__")[0]]
    while sum(part.count("\n") for part in parts) < num_lines:
        number = len(parts)
        parts.append(
            MNIST.partition("if __name__")[0].replace("def ", f"def x{number}_").replace("Net", f"Net{number}")
        )
    return "".join(parts) + "main()\n"


# of Python's functions for each line of a program; a thousand lines take a tenth of a second then
CALLS_A_LINE = 400


def test_a_thousand_lines_take_no_more_for_each_than_ten_do(tmp_path):
    text = make_long_program(1000)

    num_calls = count_calls(lambda: collect(tmp_path, text))

    assert text.count("\n") >= 1000
    assert num_calls < CALLS_A_LINE * text.count("\n")


def count_calls_a_line(folder: Path, *, num_files: int) -> float:
    """Count the calls for each line of a program of many files, of which every other one imports from the next."""
    folder.mkdir()
    num_lines, found = 0, []
    for number in range(num_files):
        text = (
            MNIST
            if number % 2
            else MNIST.replace("class Net", f"from train_{number + 1} import Net as Other\nclass Net")
        )
        (folder / f"train_{number}.py").write_text(text)
        num_lines += text.count("\n")
    num_calls = count_calls(lambda: found.append(collect_facts(read_programs([folder]))))
    assert len(found[0].list_program_objects(Kind.OPTIMIZER)) == num_files
    return num_calls / num_lines


@pytest.mark.slow
def test_many_files_take_no_more_for_each_line_than_few_do(tmp_path):
    few = count_calls_a_line(tmp_path / "few", num_files=40)
    many = count_calls_a_line(tmp_path / "many", num_files=200)

    assert many < CALLS_A_LINE
    assert many < 1.1 * few


LIBRARIES = ("torch", "transformers", "lightning", "ignite", "accelerate", "numpy")


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_strangers_files_are_walked_without_an_exception(library, tmp_path):
    folder = Path(sysconfig.get_paths()["purelib"]) / library
    files = sorted(folder.rglob("*.py"))
    if not files:
        pytest.skip(f"{library} is not installed")
    # the first with all that it imports, which is half of a library, and more of them by themselves
    first, *others = random.Random(library).sample(files, min(10, len(files)))
    for file in (first, *(shutil.copyfile(file, tmp_path / f"alone_{file.name}") for file in others)):
        facts = collect_facts(read_programs([file]))

        assert all(call.place.line > 0 for call in facts.calls), file


SNIPPETS = [line for line in MNIST.splitlines() if line.strip()]


@settings(max_examples=150)
@given(
    lines=st.lists(st.sampled_from(SNIPPETS), max_size=12), indent=st.lists(st.integers(0, 2), min_size=12, max_size=12)
)
def test_lines_in_any_order_are_walked_without_an_exception(tmp_path_factory, lines, indent):
    text = "\n".join("    " * depth + line.strip() for line, depth in zip(lines, indent))

    assert collect(tmp_path_factory.mktemp("fuzz"), text).calls is not None


NAMES = st.sampled_from(["model", "loss", "x", "self", "torch", "f", "A", "nn", "super", "print", "None", "loader"])
ATTRIBUTES = st.sampled_from(
    ["backward", "nn", "Module", "step", "x", "append", "Linear", "forward", "eval", "data", "optim"]
)
EXPRESSIONS = st.recursive(
    NAMES,
    lambda inner: st.one_of(
        st.builds("{0}.{1}".format, inner, ATTRIBUTES),
        st.builds("{0}({1}, *{2})".format, inner, inner, inner),
        st.builds("{0}[{1}]".format, inner, inner),
        st.builds("({0} + {1})".format, inner, inner),
        st.builds("[{0} for x in {1}]".format, inner, inner),
        st.builds("(lambda x: {0})".format, inner),
        st.builds("{{'a': {0}, **{1}}}".format, inner, inner),
    ),
    max_leaves=8,
)
STATEMENTS = st.one_of(
    st.builds("{0} = {1}".format, NAMES.filter(lambda name: name != "None"), EXPRESSIONS),
    st.builds("for a, b in {0}:\n    {1}".format, EXPRESSIONS, EXPRESSIONS),
    st.builds("def f(x, *y, m={0}):\n    return {1}".format, EXPRESSIONS, EXPRESSIONS),
    st.builds("class A({0}):\n    def forward(self, x):\n        return {1}".format, NAMES, EXPRESSIONS),
    st.builds("if {0}:\n    x = {1}\nelse:\n    del x".format, EXPRESSIONS, EXPRESSIONS),
    EXPRESSIONS,
)


@settings(max_examples=300)
@given(statements=st.lists(STATEMENTS, min_size=1, max_size=8))
def test_programs_of_any_kind_are_walked_without_an_exception(tmp_path_factory, statements):
    text = "import torch\nfrom torch import nn\nmodel = nn.Linear(3, 2)\n" + "\n".join(statements)

    assert collect(tmp_path_factory.mktemp("fuzz"), text).imports
