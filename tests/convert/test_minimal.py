"""The smallest port stands where the model's name is bound, before it is used and behind all that assigns it."""

from __future__ import annotations

import pytest

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
