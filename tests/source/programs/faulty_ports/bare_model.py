import torch
from torch import nn
from torch.utils.data import DataLoader

import porting
from mydata import train_set

model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
ported = porting.to_ipu(model, criterion, optimizer=optimizer)
loader = ported.dataloader(DataLoader(train_set, batch_size=32, drop_last=True))
for epoch in range(5):
    for x, y in loader:
        out = model(x)  # finds: D015
        loss = criterion(out, y)  # finds: L001
        loss.backward()  # finds: L010
        optimizer.step()  # finds: O007
        optimizer.zero_grad()  # finds: O008
torch.save(ported, "ported.pt")  # finds: K006
