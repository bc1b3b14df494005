"""MAML with a gradient penalty, on a few shots."""
import copy

import torch
from torch import nn, optim
from torch.autograd import Function, grad

from data import TaskLoader


class Quantise(Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(10, 40)
        self.fc2 = nn.Linear(40, 1)

    def forward(self, x):
        x = Quantise.apply(self.fc1(x))  # finds: C005
        x -= x.mean()
        return self.fc2(torch.relu(x))


model = Net()
meta_opt = optim.Adam(model.parameters(), lr=1e-3)
loss_fn = nn.MSELoss()

for step, (support, query) in enumerate(TaskLoader(1000)):
    fast = copy.deepcopy(model)
    inner = optim.SGD(fast.parameters(), lr=0.01)  # finds: O014
    for _ in range(5):
        inner_loss = loss_fn(fast(support[0]), support[1])  # finds: L001
        inner.zero_grad()  # finds: O008
        inner_loss.backward()  # finds: L010
        inner.step()  # finds: O007
    query[0].requires_grad_(True)
    pred = fast(query[0])
    outer = loss_fn(pred, query[1])  # finds: L001
    penalty = grad(outer, query[0], create_graph=True)[0].pow(2).mean()  # finds: L011
    total = outer + 10 * penalty
    meta_opt.zero_grad()  # finds: O008
    total.backward(retain_graph=True)  # finds: L010, L012
    for p, q in zip(model.parameters(), fast.parameters()):
        p.grad = q.grad.clone()  # finds: D009
    meta_opt.step()  # finds: O007
    print(step, total.item())  # finds: D020
