import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from porting import to_ipu

loader = DataLoader(TensorDataset(torch.randn(256, 4), torch.randint(0, 3, (256,))), batch_size=16, drop_last=True)
model = to_ipu(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)), loop="host")
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    scheduler.step()
    print(epoch, loss.item())
