"""A port stands where model and optimizer are there, before the loop; its loss is said in the words of that place."""

from __future__ import annotations

import pytest

from tests.convert.conversions import convert_files
from tests.convert.training_programs import HEAD, convert_idiomatic, read_reason

EPOCH = """
def train({parameters}):
    for x, y in [(torch.randn(8, 4), torch.randint(0, 3, (8,)))]:
        loss = {criterion}({model}(x), y)
        {optimizer}.zero_grad()
        loss.backward()
        {optimizer}.step()
"""
NAMES = {"parameters": "", "criterion": "criterion", "model": "model", "optimizer": "optimizer"}
HANDED = EPOCH.format(parameters="net, loss_of, optimizer", criterion="loss_of", model="net", optimizer="optimizer")


def write(*lines, **names):
    return HEAD + EPOCH.format(**{**NAMES, **names}) + "".join(f"{line}\n" for line in lines)


def test_names_of_a_function_are_said_in_the_words_of_its_caller(tmp_path):
    text = convert_idiomatic(
        tmp_path, HEAD + HANDED + "for epoch in range(2):\n    train(model, criterion, optimizer)\n"
    )
    assert (
        '    model = to_ipu(model, criterion, optimizer=optimizer, device=os.environ["PORT_DEVICE"])\nfor epoch' in text
    )
    assert "isinstance(net, PortedModel)" in text


def test_globals_become_ports_before_the_first_call_that_uses_them(tmp_path):
    text = convert_idiomatic(tmp_path, write("def main():", "    train()", "", "print('begin')", "main()"))
    assert 'device=os.environ["PORT_DEVICE"])\nmain()' in text


def test_a_function_that_makes_its_optimizer_makes_the_port(tmp_path):
    text = convert_idiomatic(
        tmp_path,
        HEAD
        + EPOCH.format(parameters="net", criterion="criterion", model="net", optimizer="steps").replace(
            "    for", "    steps = torch.optim.SGD(net.parameters(), lr=0.1)\n    for"
        )
        + "train(model)\n",
    )
    assert "        net = to_ipu(net, criterion, optimizer=steps," in text


def test_a_loss_that_only_the_function_knows_is_made_again_at_the_port(tmp_path):
    body = EPOCH.format(**{**NAMES, "criterion": "own"}).replace("    for", "    own = nn.CrossEntropyLoss()\n    for")
    text = convert_idiomatic(tmp_path, HEAD + body + "train()\n")
    assert "        model,\n        nn.CrossEntropyLoss(),\n        optimizer=optimizer,\n" in text


def test_modules_of_a_package_share_what_both_import_of_it(tmp_path):
    body = EPOCH.format(parameters="net, optimizer", criterion="losses.compute", model="net", optimizer="optimizer")
    files = {
        "run.py": "import package.main\n",
        "package/__init__.py": "",
        "package/losses.py": "from torch.nn.functional import cross_entropy as compute\n",
        "package/engine.py": f"import torch\n\nfrom . import losses\n{body}",
        "package/main.py": f"{HEAD}\nfrom . import losses\nfrom .engine import train\n\ntrain(model, optimizer)\n",
    }
    made = convert_files(tmp_path, files, style="idiomatic")
    assert not made.left
    assert "model = to_ipu(model, losses.compute, optimizer=optimizer" in made.changed["package/main.py"].decode()


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (
            "`train` is called from 2 places, not from one",
            HEAD
            + HANDED
            + "def main():\n    train(model, criterion, optimizer)\nmain()\ntrain(model, criterion, optimizer)\n",
        ),
        (
            "`loss_of` of `train` is given by a value without a name",
            HEAD + HANDED + "train(model, nn.CrossEntropyLoss(), optimizer)\n",
        ),
        (
            "`model` is a global that a function would have to assign",
            write(
                "def main():",
                "    steps = torch.optim.SGD(model.parameters(), lr=0.1)",
                "    train(steps)",
                "main()",
                parameters="steps",
                optimizer="steps",
            ),
        ),
        (
            "the optimizer is made anew for the same model",
            write(
                "for rate in (0.1, 0.2):",
                "    optimizer = torch.optim.SGD(model.parameters(), lr=rate)",
                "    train()",
            ),
        ),
    ],
)
def test_a_place_that_was_not_found_is_left_with_the_reason(tmp_path, reason, text):
    assert read_reason(tmp_path, text) == reason
