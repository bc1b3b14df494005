import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import porting
from porting import PortOptions, to_ipu


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(16, 16) for _ in range(3)])
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x).relu()
        return self.head(x)


dataset = TensorDataset(torch.randn(512, 16), torch.randint(10, (512,)))
model = Net()
teacher = copy.deepcopy(model).eval()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=PortOptions(accumulation=4))
loader = ported.dataloader(DataLoader(dataset, batch_size=8, shuffle=True, drop_last=True))
scheduler = ported.scheduler(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10 * len(loader)))
infer = ported.inference()
for epoch in range(10):
    for x, y in loader:
        output, loss = ported(x, y)
        scheduler.step()
    right = sum((infer(x).argmax(-1) == y).sum().item() for x, y in DataLoader(dataset, batch_size=8, drop_last=True))
    print(epoch, loss.item(), right / len(dataset))
with torch.no_grad():
    print(teacher(dataset.tensors[0]).std())
ported.save("checkpoint.pt")
