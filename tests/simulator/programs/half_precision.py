"""Train in half precision, in single precision and in mixtures of both, as the vendor's tutorial compares them."""

import itertools

import poptorch
import torch
import torch.nn as nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.hidden, self.output = nn.Linear(4 * 5 * 5, 16), nn.Linear(16, 4)
        self.loss = nn.NLLLoss()

    def forward(self, x, labels=None):
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.convolution(x))), 2)
        x = torch.log_softmax(self.output(torch.relu(self.hidden(x.flatten(1)))), dim=1)
        return x if labels is None else (x, self.loss(x.float(), labels))


def make_data():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(64) % 4
    pictures = torch.randn(4, 1, 12, 12, generator=generator)
    return pictures[labels] + 0.1 * torch.randn(64, 1, 12, 12, generator=generator), labels


def train(model_type, input_type, accumulation_type):
    torch.manual_seed(0)
    model = Classifier().to(model_type).train()
    if model_type == torch.half:
        # statistics of many batches are kept in single precision
        model.norm.running_mean, model.norm.running_var = (
            model.norm.running_mean.float(),
            model.norm.running_var.float(),
        )
    images, labels = make_data()
    options = poptorch.Options().deviceIterations(2).randomSeed(1)
    options.Precision.setPartialsType(model_type).enableStochasticRounding(True)
    loader = poptorch.DataLoader(
        options, torch.utils.data.TensorDataset(images.to(input_type), labels), batch_size=8, shuffle=True
    )
    optimizer = poptorch.optim.AdamW(
        model.parameters(), lr=0.01, eps=1e-4, loss_scaling=64.0, accum_type=accumulation_type
    )
    training_model = poptorch.trainingModel(model, options, optimizer)
    losses = []
    for _epoch in range(6):
        for batch in loader:
            output, loss = training_model(*batch)
            losses.append(float(loss))
    training_model.detachFromDevice()

    assert output.dtype == input_type
    assert model.hidden.weight.dtype == model_type
    assert model.norm.running_mean.dtype == torch.float
    inference_model = poptorch.inferenceModel(model.eval(), poptorch.Options())
    predicted = inference_model(images.to(input_type)).argmax(dim=1)
    return losses[-1] < 0.5 * losses[0], float((predicted == labels).float().mean())


if __name__ == "__main__":
    for types in itertools.product((torch.half, torch.float), repeat=3):
        learnt, accuracy = train(*types)
        print(*(str(dtype).replace("torch.", "") for dtype in types), learnt, accuracy)
