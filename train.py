# train.py
import torch
from porting import PortOptions, to_ipu

class Distance(torch.nn.Module):
    def forward(self, x):
        return (x - x.detach()).square().sum(dim=1, keepdim=True).sqrt() + x

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), Distance(), torch.nn.Linear(4, 3))
ported = to_ipu(model, torch.nn.CrossEntropyLoss())
batch = torch.randn(8, 4), torch.zeros(8, dtype=torch.int64)
fault = ported.find_nan(batch)
assert (fault.phase, fault.module_path, fault.operator.name) == ("backward", "2", "aten.sqrt.default")
print(fault)
