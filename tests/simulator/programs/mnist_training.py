"""Train a small CNN on made-up digits and measure its accuracy, as the vendor's first tutorial does."""

import argparse

import poptorch
import torch
import torch.nn as nn


class Digits(torch.utils.data.Dataset):
    """Images of noise with a bright square whose place is the label."""

    def __init__(self, num_images, seed):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.arange(num_images) % 4
        self.images = torch.randn(num_images, 1, 8, 8, generator=generator) * 0.1
        for image, label in zip(self.images, self.labels):
            row, column = divmod(int(label), 2)
            image[0, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 1.0

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 16), nn.ReLU(), nn.Linear(16, 4)
        )

    def forward(self, x):
        return self.layers(x)


class TrainingModelWithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, labels=None):
        output = self.model(x)
        return output if labels is None else (output, self.loss(output, labels))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--device-iterations", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    if not poptorch.ipuHardwareIsAvailable():
        raise SystemExit("no IPU hardware available, skipping")

    torch.manual_seed(0)
    training_opts = poptorch.Options().deviceIterations(args.device_iterations)
    training_opts.outputMode(poptorch.OutputMode.All)
    training_data = poptorch.DataLoader(
        training_opts, Digits(64, seed=1), batch_size=args.batch_size, shuffle=True, drop_last=True
    )
    test_data = poptorch.DataLoader(poptorch.Options().deviceIterations(4), Digits(32, seed=2), batch_size=8)

    model = Network()
    with_loss = TrainingModelWithLoss(model)
    training_model = poptorch.trainingModel(
        with_loss, training_opts, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    )
    for _epoch in range(args.epochs):
        for data, labels in training_data:
            predictions, losses = training_model(data, labels)
            assert predictions.shape == (16, 4)
            assert losses.shape == (4,)
    training_model.detachFromDevice()

    inference_model = poptorch.inferenceModel(model, poptorch.Options().deviceIterations(4))
    correct = total = 0
    for data, labels in test_data:
        output = inference_model(data)
        correct += int((output.argmax(dim=1) == labels).sum())
        total += len(labels)
    print(f"Accuracy on test set: {100.0 * correct / total:0.2f}%")


if __name__ == "__main__":
    main()
