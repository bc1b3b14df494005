"""Show which rows each instance of a program gets from a loader, plain options under a launcher."""

import json

import poptorch
import torch

options = poptorch.Options()
options.randomSeed(7)
rows = torch.arange(16, dtype=torch.float32).reshape(16, 1)
loader = poptorch.DataLoader(options, torch.utils.data.TensorDataset(rows), batch_size=2, shuffle=True)
epochs = [sorted(int(row) for (batch,) in loader for row in batch) for _epoch in range(2)]
print(json.dumps({"index": options.Distributed.processId, "epochs": epochs}))
