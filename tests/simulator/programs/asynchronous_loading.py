"""Fill batches in a process of its own while the model computes."""

import poptorch
import torch


class Scale(torch.nn.Module):
    def forward(self, x):
        return x * 2


if __name__ == "__main__":
    options = poptorch.Options().deviceIterations(2)
    data = torch.utils.data.TensorDataset(torch.arange(12, dtype=torch.float32).reshape(12, 1))
    loader = poptorch.DataLoader(options, data, batch_size=2, mode=poptorch.DataLoaderMode.Async)
    model = poptorch.inferenceModel(Scale(), options)
    total = sum(float(model(x).sum()) for _epoch in range(2) for (x,) in loader)
    loader.terminate()
    print("total", total)
