import torch
from torch import nn
import poptorch

from torch.utils.data import TensorDataset
from tqdm import tqdm


class ModelWithLoss(nn.Module):
    def __init__(self, hidden=32, num_classes=10):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, hidden), nn.ReLU(), nn.Linear(hidden, num_classes))
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, x, labels=None):
        output = self.layers(x)
        if labels is None:
            return output
        return output, self.criterion(output, labels)


def train(training_model, loader, epochs):
    training_model.train()
    for epoch in range(epochs):
        bar = tqdm(loader, total=len(loader))
        for data, labels in bar:
            preds, losses = training_model(data, labels)
            mean_loss = torch.mean(losses).item()
            acc = accuracy(preds, labels)
            bar.set_description(f"loss {mean_loss:0.4f} accuracy {acc:0.2f}")


def accuracy(predictions, labels):
    _, ind = torch.max(predictions, 1)
    labels = labels[-predictions.size()[0] :]
    return torch.sum(torch.eq(ind, labels)).item() / labels.size()[0] * 100.0


def test(inference_model, loader):
    inference_model.eval()
    total = 0.0
    with torch.no_grad():
        for data, labels in tqdm(loader):
            output = inference_model(data)
            total += accuracy(output, labels)
    return total / len(loader)


training_opts = poptorch.Options().deviceIterations(8)
inference_opts = poptorch.Options().deviceIterations(32)
train_set = TensorDataset(torch.randn(512, 16), torch.randint(10, (512,)))
test_set = TensorDataset(torch.randn(512, 16), torch.randint(10, (512,)))
train_loader = poptorch.DataLoader(training_opts, train_set, batch_size=8, shuffle=True, drop_last=True)
test_loader = poptorch.DataLoader(inference_opts, test_set, batch_size=8, drop_last=True)
model = ModelWithLoss()
training_model = poptorch.trainingModel(model, training_opts, poptorch.optim.AdamW(model.parameters(), lr=0.01))
inference_model = poptorch.inferenceModel(model, inference_opts)
for epoch in range(5):
    train(training_model, train_loader, 1)
    training_model.detachFromDevice()
    print(test(inference_model, test_loader))
    inference_model.detachFromDevice()
    training_model.attachToDevice()
