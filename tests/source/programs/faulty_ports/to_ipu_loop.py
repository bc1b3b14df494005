import torch
from torch import nn
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader, TensorDataset

from porting import PortOptions, to_ipu

data = TensorDataset(torch.randn(1000, 8), torch.randint(0, 4, (1000,)))
loader = DataLoader(data, batch_size=32, shuffle=True)  # finds: B014
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
criterion = nn.CrossEntropyLoss()
ported = to_ipu(model, criterion, options=PortOptions(accumulation=2))  # finds: O012
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
ported = nn.DataParallel(ported)  # finds: D003
scaler = GradScaler()  # finds: O010
for epoch in range(10):
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()  # finds: O008
        with autocast():  # finds: P013
            out, loss = ported(x, y)
        scaler.scale(loss).backward()  # finds: L010
        scaler.step(optimizer)  # finds: O007
        scaler.update()  # finds: O010
    print(epoch, loss.item())
