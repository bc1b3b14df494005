from __future__ import print_function

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR
from torchvision import datasets, transforms


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.rnn = nn.LSTM(input_size=28, hidden_size=64, batch_first=True)
        self.batchnorm = nn.BatchNorm1d(64)
        self.fc = nn.Linear(64, 10)

    def forward(self, input):
        input = input.reshape(-1, 28, 28)
        output, hidden = self.rnn(input)
        output = output[:, -1, :]
        output = self.batchnorm(output)
        return F.log_softmax(self.fc(output), dim=1)


def train(model, device, train_loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()  # finds: O008
        output = model(data)
        loss = F.nll_loss(output, target)  # finds: L001
        loss.backward()  # finds: L010
        optimizer.step()  # finds: O007
        if batch_idx % 10 == 0:
            print("Train Epoch: {} Loss: {:.6f}".format(epoch, loss.item()))


def test(model, device, test_loader):
    model.eval()  # finds: D014
    test_loss = 0
    correct = 0
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction="sum").item()  # finds: D020
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()  # finds: D020


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train_loader = torch.utils.data.DataLoader(  # finds: B010
        datasets.MNIST("../data", train=True, transform=transforms.ToTensor()), batch_size=64, shuffle=True
    )
    test_loader = torch.utils.data.DataLoader(  # finds: B010
        datasets.MNIST("../data", train=False, transform=transforms.ToTensor()), batch_size=1000, shuffle=True
    )
    model = Net().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=0.1)  # finds: O001
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(1, 15):
        train(model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)
        scheduler.step()  # finds: O013
    torch.save(model.state_dict(), "mnist_rnn.pt")


if __name__ == "__main__":
    main()
