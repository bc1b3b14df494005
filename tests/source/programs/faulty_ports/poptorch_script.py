import time

import poptorch
import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(784, 10)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, y=None):
        out = self.fc(x.view(-1, 784))
        if y is None:
            return out
        return out, self.loss(out, y)


train_loader = DataLoader(datasets.MNIST("d", transform=transforms.ToTensor()), batch_size=64)  # finds: B014
model = Net()
opts = poptorch.Options()
optimizer = optim.Adagrad(model.parameters(), lr=0.01)  # finds: O001
scheduler = optim.lr_scheduler.StepLR(optimizer, 1)
training_model = poptorch.trainingModel(model, opts, optimizer=optimizer)
training_model.cuda()  # finds: D003
for epoch in range(3):
    start = time.time()
    for x, y in train_loader:
        optimizer.zero_grad()  # finds: O008
        out, loss = training_model(x, y)  # finds: D016
        loss.backward()  # finds: L010
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # finds: O009
        optimizer.step()  # finds: O007
    scheduler.step()  # finds: O013
    print("epoch", epoch, "took", time.time() - start)
    training_model.eval()  # finds: D014
torch.save(training_model, "model.pt")  # finds: K006
