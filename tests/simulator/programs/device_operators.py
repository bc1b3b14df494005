"""One model for each of PopTorch's own operators, each compared with what plain PyTorch computes."""

import poptorch
import torch
from torch import nn


class Powers(nn.Module):
    def forward(self, x, total):
        return poptorch.for_loop(10, lambda power, total: (power * 2, total + power), [x, total])


class Branches(nn.Module):
    def forward(self, x, y, condition):
        return poptorch.cond(condition.sum() > 0, lambda a, b: a + b, [x, y], lambda a: a * 3, [x])[0]


class SortedOnTheHost(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.sort = poptorch.CPU(self.sort_on_the_host, "sort")

    def sort_on_the_host(self, x):
        assert x.device.type == "cpu"
        return x.sort(descending=True).values

    def forward(self, x):
        return self.linear(self.sort(self.linear(x)))


class LeakyLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.loss = nn.Linear(3, 2), nn.MSELoss()

    def activate(self, x):
        if not poptorch.isRunningOnIpu():
            return nn.functional.leaky_relu(x, 0.02)
        attributes = {"alpha": 0.02}
        return poptorch.custom_op([x], "LeakyRelu", "com.acme", 1, example_outputs=[x], attributes=attributes)[0]

    def forward(self, x, target):
        output = self.activate(self.linear(x))
        return output, self.loss(output, target)


class TwoConvolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Conv2d(1, 2, 3), nn.Conv2d(1, 2, 3)

    def forward(self, x, y):
        plan = poptorch.MultiConv().planType(poptorch.MultiConvPlanType.Parallel).availableMemoryProportions((0.3, 0.2))
        with plan.partialsTypes([torch.float, torch.half]).perConvReservedTiles(100):
            left, right = self.left(x), self.right(y)
        return left + right


class Annotated(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 8))

    def forward(self, x):
        x = poptorch.ipu_print_tensor(x, "rows")
        with poptorch.NameScope("projection"), poptorch.Attribute(__outline={"layer": "projection"}):
            x = poptorch.serializedMatMul(x, self.weight, poptorch.MatMulSerializationMode.OutputChannels, 4)
        first, second = poptorch.recomputationCheckpoint(poptorch.set_available_memory(x, 0.1), x * 2)
        return poptorch.nop(first + second)


class Window(nn.Module):
    def forward(self, x, start):
        window = poptorch.dynamic_slice(x, 1, start, 2, 1)
        return window, poptorch.dynamic_update(x, window * 10, 1, start, 2)


def run(module, *args, options=None):
    return poptorch.inferenceModel(module, options)(*args)


def main():
    power, total = run(Powers(), torch.tensor([1.0]), torch.tensor([0.0]))
    print("for_loop", power.item(), total.item())

    x, y = torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])
    branches = poptorch.inferenceModel(Branches())
    print("cond", *(branches(x, y, torch.tensor([sign])).tolist() for sign in (1.0, -1.0)))

    module, x = SortedOnTheHost(), torch.randn(2, 6)
    expected = module.linear(module.linear(x).sort(descending=True).values)
    torch.testing.assert_close(run(module, x), expected.detach())
    print("CPU equal")

    module, x, target = LeakyLayer(), torch.randn(4, 3), torch.randn(4, 2)
    on_the_host = module(x, target)[1].item()
    training_model = poptorch.trainingModel(module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1))
    losses = [training_model(x, target)[1].item() for _step in range(20)]
    print("custom_op", abs(losses[0] - on_the_host) < 1e-6, losses[-1] < losses[0])

    module, x, y = TwoConvolutions(), torch.randn(1, 1, 8, 8), torch.randn(1, 1, 8, 8)
    torch.testing.assert_close(run(module, x, y), (module.left(x) + module.right(y)).detach())
    print("MultiConv equal")

    module, x = Annotated(), torch.arange(8.0).reshape(2, 4)
    output = run(module, x, options=poptorch.Options().deviceIterations(2))
    torch.testing.assert_close(output, 3 * (x @ module.weight).detach())
    print("annotations equal")

    window, updated = run(Window(), torch.arange(8.0).reshape(1, 8), torch.tensor([3]))
    print("dynamic", window.tolist(), updated.tolist())


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
