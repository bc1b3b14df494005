"""The smallest port stands where the model's name is bound, before it is used and behind all that assigns it."""

from __future__ import annotations

import pytest

from porting.convert.conversion import plan_conversion
from porting.convert.sites import Role, Site
from tests.convert.conversions import LOOP, convert_files, convert_text

PORT = '{0} = to_ipu({0}, loop="host", options=PortOptions(max_executables=8), device=os.environ["PORT_DEVICE"])'


def list_lines(text):
    return [line.strip() for line in text.split("\n") if line.strip()]


def lines_around(text, name="model"):
    lines = list_lines(text)
    place = next(number for number, line in enumerate(lines) if line == PORT.format(name))
    return lines[place - 2], lines[place + 1]


def test_the_port_stands_before_the_loop(tmp_path):
    text, made = convert_text(tmp_path, LOOP)
    assert not made.left
    assert lines_around(text) == (
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        "for step in range(3):",
    )
    assert all(line in text.split("\n") for line in LOOP.split("\n"))


def test_a_model_that_is_handed_to_a_function_becomes_a_port_in_the_caller(tmp_path):
    text, made = convert_text(
        tmp_path,
        """\
        import torch
        from torch import nn

        def train(net, optimizer):
            for step in range(3):
                loss = net(torch.randn(8, 4)).sum()
                loss.backward()
                optimizer.step()

        def main():
            model = nn.Linear(4, 2)
            if torch.cuda.is_available():
                model = model.cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for epoch in range(2):
                train(model, optimizer)

        if __name__ == "__main__":
            main()
        """,
    )
    assert not made.left
    assert lines_around(text)[1] == "for epoch in range(2):"


def test_an_attribute_becomes_a_port_where_it_is_assigned(tmp_path):
    made = convert_files(
        tmp_path,
        {
            "main.py": """\
                from torch import nn
                from engine import Trainer

                Trainer(nn.Linear(4, 2)).fit()
                """,
            "engine.py": """\
                import torch

                class Trainer:
                    def __init__(self, model):
                        self.model = model
                        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

                    def fit(self):
                        for step in range(3):
                            self.optimizer.zero_grad()
                            self.model(torch.randn(8, 4)).sum().backward()
                            self.optimizer.step()
                """,
        },
    )
    assert not made.left
    assert lines_around(made.changed["engine.py"].decode(), "self.model")[0] == "self.model = model"
    assert set(made.changed) == {"main.py", "engine.py"}


def test_a_global_becomes_a_port_before_the_call_that_trains(tmp_path):
    text, made = convert_text(
        tmp_path,
        """\
        import torch
        from torch import nn

        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step():
            optimizer.zero_grad()
            model(torch.randn(8, 4)).sum().backward()
            optimizer.step()

        for number in range(3):
            step()
        model = torch.load("best.pt")
        """,
    )
    assert not made.left
    assert lines_around(text)[1] == "for number in range(3):"


def test_both_networks_of_a_gan_become_ports(tmp_path):
    text, made = convert_text(
        tmp_path,
        """\
        import torch
        from torch import nn

        generator, critic = nn.Linear(2, 4), nn.Linear(4, 1)
        first = torch.optim.SGD(generator.parameters(), lr=0.1)
        second = torch.optim.SGD(critic.parameters(), lr=0.1)
        for step in range(3):
            first.zero_grad()
            critic(generator(torch.randn(8, 2))).sum().backward()
            first.step()
            second.zero_grad()
            critic(generator(torch.randn(8, 2)).detach()).sum().backward()
            second.step()
        """,
    )
    assert not made.left
    lines = list_lines(text)
    assert lines.count(PORT.format("generator")) == lines.count(PORT.format("critic")) == 1


def test_a_model_whose_parts_are_called_one_by_one_keeps_its_methods(tmp_path):
    text, made = convert_text(
        tmp_path,
        """\
        import torch
        from torch import nn

        class Agent(nn.Module):
            def __init__(self):
                super().__init__()
                self.policy = nn.Linear(4, 2)

            def act(self, x):
                return self.policy(x)

        agent = Agent()
        optimizer = torch.optim.SGD(agent.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            agent.act(torch.randn(8, 4)).sum().backward()
            optimizer.step()
        """,
    )
    assert not made.left
    assert "DeviceCalls(agent, device=" in text


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("x = 1\n", "no call of a model"),
        (LOOP.replace("model(x)", "[model][0](x)"), "which has no name to port"),
    ],
)
def test_what_cannot_be_decided_is_left_with_its_line(tmp_path, program, reason):
    _text, made = convert_text(tmp_path, program)
    assert [reason in one.reason for one in made.left] in ([True], [])
    assert made.left or "DeviceCalls(model, device=" in _text


CALLS = 'DeviceCalls({0}, device=os.environ["PORT_DEVICE"]).install()'


@pytest.mark.parametrize(
    "line",
    [
        "assert isinstance(model, nn.Linear)",
        "torch.save(model, 'whole.pt')",
        "best = copy.deepcopy(model)",
        "torch.save({'epoch': 1, 'net': model}, 'whole.pt')",
        "state = {'net': model}; torch.save(state, 'whole.pt')",
    ],
)
def test_a_model_that_is_looked_at_later_stays_the_object_that_it_is(tmp_path, line):
    text, made = convert_text(tmp_path, f"import copy\n{LOOP}{line}\n")

    assert not made.left
    assert CALLS.format("model") in text
    assert "to_ipu" not in text


@pytest.mark.parametrize("move", ["model.cpu()", "model.to('cpu')", "evaluate(model)"])
def test_a_model_that_is_moved_later_stays_the_object_that_it_is(tmp_path, move):
    evaluate = "def evaluate(net):\n    net.to('cpu')\n\n\n"
    text, made = convert_text(tmp_path, f"{evaluate}{LOOP}{move}\n", style="minimal")

    assert not made.left
    assert CALLS.format("model") in text


def test_a_model_that_is_moved_before_becomes_a_port(tmp_path):
    program = LOOP.replace("optimizer =", "model = model.to('cpu')\noptimizer =", 1)
    text, _made = convert_text(tmp_path, program, style="minimal")

    assert PORT.format("model") in text


def test_a_copy_that_is_made_before_is_one_of_the_plain_model(tmp_path):
    text, _made = convert_text(tmp_path, "import copy\n" + LOOP.replace("for step", "old = copy.copy(model)\nfor step"))

    assert PORT.format("model") in text


@pytest.mark.parametrize(
    ("made", "called", "each"),
    [
        ("{'a': nn.Linear(4, 2)}", "nets['a'](x)", "nets.values()"),
        ("[nn.Linear(4, 2), nn.Linear(4, 2)]", "nets[0](x) + nets[1](x)", "list(nets)"),
    ],
)
def test_each_model_of_a_collection_runs_on_the_device(tmp_path, made, called, each):
    program = LOOP.replace("model = nn.Linear(4, 2)", f"nets = {made}").replace("model(x)", called)
    program = program.replace("model.parameters()", "[p for net in nets.values() for p in net.parameters()]")
    text, converted = convert_text(tmp_path, program)

    assert not converted.left
    assert f"for each_model in {each}:\n        {CALLS.format('each_model')}" in text


def test_methods_of_one_name_have_callers_of_their_own_class(tmp_path):
    text, made = convert_text(
        tmp_path,
        """\
        import torch
        from torch import nn

        class Critic(nn.Linear):
            def learn(self, target, optimizer):
                (self(torch.randn(8, 4)) - target).square().mean().backward()
                optimizer.step()

        class Actor(nn.Linear):
            def learn(self, critic, optimizer):
                critic(self(torch.randn(8, 4))).mean().backward()
                optimizer.step()

        critic, actor = Critic(4, 4), Actor(4, 4)
        optimizer = torch.optim.SGD([*critic.parameters(), *actor.parameters()], lr=0.1)
        for step in range(3):
            target = torch.randn(8, 4)
            critic.learn(target, optimizer)
            actor.learn(critic, optimizer)
        """,
    )

    assert "to_ipu(target" not in text
    assert CALLS.format("critic") in text
    assert CALLS.format("actor") in text
    assert "= to_ipu(critic" not in text


def test_what_a_partial_function_calls_becomes_the_port(tmp_path):
    program = "from functools import partial\n" + LOOP.replace("for step", "forward = partial(model)\nfor step")
    script = tmp_path / "train.py"
    script.write_text(program.replace("model(x)", "forward(x)"))
    line = program[: program.index("model(x)")].count("\n") + 1
    seen = [Site(Role.FORWARD, str(script), line, program.split("\n")[line - 1].index("model(x)"))]
    made = plan_conversion(str(tmp_path), "train.py", style="minimal", sites=seen)

    assert not made.left
    assert lines_around(made.changed["train.py"].decode())[1] == "forward = partial(model)"


PENALTY = """\
import torch
from torch import nn

CRITIC = nn.Linear(4, 1)
optimizer = torch.optim.SGD(CRITIC.parameters(), lr=0.1)
for step in range(3):
    mixed = torch.randn(8, 4, requires_grad=True)
    out = CRITIC(mixed)
    slope = torch.autograd.grad(out.sum(), mixed, create_graph=True)[0]
    loss = CRITIC(torch.randn(8, 4)).mean() + slope.square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_gradient_of_a_gradient_is_asked_of_the_plain_model(tmp_path):
    text, made = convert_text(tmp_path, PENALTY)

    assert not made.left
    assert 'out = (CRITIC.model if "PORT_DEVICE" in os.environ else CRITIC)(mixed)' in text
    assert "loss = CRITIC(torch" in text


def test_a_gradient_of_a_gradient_of_a_model_that_is_no_port_is_left(tmp_path):
    _text, made = convert_text(tmp_path, PENALTY + "torch.save(CRITIC, 'whole.pt')\n")

    assert [(one.line, one.reason) for one in made.left] == [
        (9, "a gradient of a gradient is asked for, which no device computes")
    ]


def test_a_gradient_of_a_gradient_in_a_function_that_nothing_calls_is_none(tmp_path):
    unused = (
        "def penalize(out, x, create_graph=False):\n    return torch.autograd.grad(out, x, create_graph=create_graph)\n"
    )
    _text, made = convert_text(tmp_path, f"{unused}\n\n{LOOP}", style="minimal")

    assert not made.left


CHOSEN = """\
import sys
import torch
from torch import nn

class Net(nn.Linear):
    def compute(self, x):
        return self(x).square().mean()

class Other(Net):
    pass

if len(sys.argv) > 5:
    net = Other(4, 2)
else:
    net = Net(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    loss = net.compute(torch.randn(8, 4))
    loss.backward()
    optimizer.step()
"""


def test_each_of_several_models_that_a_program_chooses_from_runs_on_the_device(tmp_path):
    text, made = convert_text(tmp_path, CHOSEN)

    assert not made.left
    behind = text.partition("    net = Net(4, 2)\n")[2]
    assert behind.startswith('if "PORT_DEVICE" in os.environ:\n    ' + CALLS.format("net"))
    assert text.count("DeviceCalls(") == 1


@pytest.mark.parametrize("style", ["idiomatic", "minimal"])
def test_a_global_that_the_main_guard_trains_becomes_a_port_behind_the_command_line(tmp_path, style):
    head, _, loop = LOOP.partition("for step")
    body = "".join(f"    {line}\n" for line in f"for step{loop}".splitlines())
    text, made = convert_text(tmp_path, f"{head}def train():\n{body}\nif __name__ == '__main__':\n    train()\n")

    assert not made.left
    guard = text.partition("if __name__ == '__main__':")[2]
    assert guard.index("parse_known_args") < guard.index("model = to_ipu(")


BRANCHES = """\
import sys
import torch
from torch import nn

def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()

if len(sys.argv) > 5:
    net = nn.Linear(4, 3)
    train(net)
else:
    net = nn.Linear(4, 2)
    train(net)
"""


def test_a_model_of_each_branch_becomes_a_port(tmp_path):
    text, made = convert_text(tmp_path, BRANCHES)

    assert not made.left
    assert text.count(PORT.format("net")) == 2
