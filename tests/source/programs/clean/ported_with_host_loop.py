import torch
from torch import nn

from porting import to_ipu


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x)


model = Net()
ported = to_ipu(model, loop="host")
optimizer = torch.optim.NAdam(ported.parameters(), lr=1e-3, maximize=False)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
for step in range(100):
    x = torch.randn(8, 16)
    loss = (ported(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(ported.parameters(), 1.0)
    optimizer.step()
    scheduler.step(loss.item())
