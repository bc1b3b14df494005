import argparse

import poptorch
import torch
import torch.nn as nn
import torch.optim as optim
import torchvision
from tqdm import tqdm


class Block(nn.Module):
    def __init__(self, in_channels, num_filters, kernel_size, pool_size):
        super(Block, self).__init__()
        self.conv = nn.Conv2d(in_channels, num_filters, kernel_size=kernel_size)
        self.pool = nn.MaxPool2d(kernel_size=pool_size)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.pool(self.conv(x)))


class Network(nn.Module):
    def __init__(self):
        super(Network, self).__init__()
        self.layer1 = Block(1, 32, 3, 2)
        self.layer2 = Block(32, 64, 3, 2)
        self.layer3 = nn.Linear(1600, 128)
        self.layer4 = nn.Linear(128, 10)
        self.softmax = nn.Softmax(1)

    def forward(self, x):
        x = self.layer2(self.layer1(x))
        x = x.view(-1, 1600)
        return self.softmax(self.layer4(torch.relu(self.layer3(x))))


class TrainingModelWithLoss(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, args, labels=None):
        output = self.model(args)
        if labels is None:
            return output
        return output, self.loss(output, labels)


def accuracy(predictions, labels):
    _, ind = torch.max(predictions, 1)
    labels = labels[-predictions.size()[0] :]
    return torch.sum(torch.eq(ind, labels)).item() / labels.size()[0] * 100.0


def train(training_model, train_dataloader, epochs):
    for epoch in range(1, epochs + 1):
        print(f"Epoch {epoch}/{epochs}")
        bar = tqdm(train_dataloader, total=len(train_dataloader))
        for data, labels in bar:
            preds, losses = training_model(data, labels)
            mean_loss = torch.mean(losses).item()
            acc = accuracy(preds, labels)
            bar.set_description("Loss: {:0.4f} | Accuracy: {:05.2F}% ".format(mean_loss, acc))


def test(inference_model, test_dataloader):
    sum_acc = 0.0
    for data, labels in tqdm(test_dataloader, total=len(test_dataloader)):
        output = inference_model(data)
        sum_acc += accuracy(output, labels)
    print("Accuracy on test set: {:0.2f}%".format(sum_acc / len(test_dataloader)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="MNIST training in PopTorch")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--device-iterations", type=int, default=50)
    parser.add_argument("--test-batch-size", type=int, default=80)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    transform = torchvision.transforms.Compose(
        [torchvision.transforms.ToTensor(), torchvision.transforms.Normalize((0.1307,), (0.3081,))]
    )
    training_opts = poptorch.Options()
    training_opts.deviceIterations(args.device_iterations)
    training_opts.outputMode(poptorch.OutputMode.All)
    train_dataloader = poptorch.DataLoader(
        training_opts,
        torchvision.datasets.MNIST("mnist_data/", train=True, download=True, transform=transform),
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=10,
    )
    test_dataloader = poptorch.DataLoader(
        poptorch.Options(),
        torchvision.datasets.MNIST("mnist_data/", train=False, download=True, transform=transform),
        batch_size=args.test_batch_size,
        num_workers=10,
    )
    model = Network()
    model_with_loss = TrainingModelWithLoss(model)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=args.lr)
    training_model = poptorch.trainingModel(model_with_loss, training_opts, optimizer=optimizer)
    train(training_model, train_dataloader, args.epochs)
    training_model.detachFromDevice()
    inference_model = poptorch.inferenceModel(model)
    test(inference_model, test_dataloader)
    torch.save(model.state_dict(), "mnist.pt")
