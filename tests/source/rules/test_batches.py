"""What loops over batches do beside the step."""

from __future__ import annotations

HEAD = """
        import torch
        from data import loader
        model = torch.nn.Linear(4, 3)
"""


def test_what_is_read_now_and_then_is_no_finding(find):
    program = (
        HEAD
        + """
        for i, (x, y) in enumerate(loader):
            loss = (model(x) - y).mean()
            loss.backward()
            if i % 100 == 0:
                print(loss.item())
            if i == 0:
                first = loss.item()
        print(loss.item())
    """
    )

    assert find(program) == ["L001:6", "L010:7"]


STEPPED = """
        first = torch.optim.SGD(model.parameters(), 0.1)
        second = torch.optim.SGD(model.parameters(), 0.1)
        for i, (x, y) in enumerate(loader):
            loss = (model(x) - y).mean()
            loss.backward()
            {step}
            if i % 5 == 0:
                second.step()
                print(loss.item())
"""


def test_what_is_read_with_each_step_of_the_only_optimizer_is_read_in_each_call(find):
    assert "D020:13" in find(HEAD + STEPPED.format(step="pass"))


def test_what_is_read_with_some_steps_of_a_second_optimizer_is_read_now_and_then(find):
    assert "D020:13" not in find(HEAD + STEPPED.format(step="first.step()"))


def test_a_line_that_reads_twice_is_one_finding(find):
    program = (
        HEAD
        + """
        for x, y in loader:
            output = model(x)
            print(output.sum().item(), output.mean().item())
    """
    )

    assert find(program) == ["D020:7"]


def test_results_of_a_port_may_be_read(find):
    program = """
        import torch
        from torch import nn
        from data import dataset
        from porting import to_ipu
        ported = to_ipu(nn.Linear(4, 3), nn.CrossEntropyLoss())
        for x, y in ported.dataloader(dataset):
            output, loss = ported(x, y)
            print(loss.item(), (output.argmax(1) == y).float().mean().item())
    """

    assert find(program) == []


def test_a_break_at_the_end_of_the_training_is_no_early_one(find):
    program = (
        HEAD
        + """
        step = 0
        for epoch in range(100):
            for x, y in loader:
                (model(x) - y).mean().backward()
                step += 1
                if step >= 1000:
                    break
    """
    )

    assert [finding for finding in find(program) if finding.startswith("B021")] == []


def test_a_comparison_that_is_used_is_no_slip(find):
    program = """
        import torch
        x = {"a": 1}
        y = x["a"] == 2
        x["a"] == 2
        print(x["a"] == 2)
        x["a"] > 2
    """

    assert find(program) == ["B022:4"]


def test_a_loss_that_is_cut_off_for_a_mean_is_no_state(find):
    program = (
        HEAD
        + """
        total = 0
        for x, y in loader:
            loss = (model(x) - y).mean()
            loss.backward()
            loss = loss.detach()
            total = total + loss
    """
    )

    assert find(program) == ["L001:7", "L010:8"]


def test_what_a_method_assigns_to_its_own_argument_is_no_state(find):
    program = """
        import torch
        from torch import nn
        from data import loader
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder, self.head = nn.Linear(4, 4), nn.Linear(4, 2)
            def value(self, x):
                x = self.encoder(x)
                return self.head(x)
        net = Net()
        for x in loader:
            net.value(x)
    """

    assert find(program) == []


def test_a_loop_over_layers_carries_no_state(find):
    program = """
        import torch
        from torch import nn
        layers = [nn.Linear(4, 4) for _ in range(3)]
        def run(h):
            for layer in layers:
                h = layer(h)
            return h
        run(torch.rand(2, 4))
    """

    assert find(program) == []


def test_an_environment_around_another_one_hands_on_its_actions(find):
    program = """
        import gymnasium as gym
        class Sticky(gym.Wrapper):
            def reset(self):
                self.env.step(0)
                return self.env.step(self.first)
            def step(self, action):
                return self.env.step(action)
        env = Sticky(gym.make("Pong"))
        env.step(env.action_space.sample())
    """

    assert find(program) == ["B020:9"]


_LEFT_EARLY = """
import gym, torch
from porting import to_ipu
from data import loader
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
PORT
environment = gym.make("CartPole-v1")
for number, (x, y) in enumerate(loader):
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    environment.step(int(model(x).argmax()))
    if number >= 100:
        break
"""


def test_a_loop_on_the_host_may_be_left_early_and_step_an_environment(find):
    plain, ported = (_LEFT_EARLY.replace("PORT", port) for port in ("", "model = to_ipu(model, loop='host')"))

    codes = [{one.split(":")[0] for one in find(program)} & {"B020", "B021"} for program in (plain, ported)]
    assert codes == [{"B020", "B021"}, set()]
