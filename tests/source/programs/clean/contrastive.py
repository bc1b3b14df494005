import torch
from torch import nn
import poptorch


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(16, 8), nn.Linear(16, 8)
        self.temperature = nn.Parameter(torch.tensor(1.0))
        self.register_buffer("queue", torch.randn(8, 64))

    def forward(self, images, texts):
        a, b = nn.functional.normalize(self.image(images)), nn.functional.normalize(self.text(texts))
        logits = a @ b.t() * self.temperature.exp()
        labels = torch.arange(logits.size(0), device=logits.device)
        loss = nn.functional.cross_entropy(logits, labels) + nn.functional.cross_entropy(logits.t(), labels)
        loss = loss / 2
        self.queue.copy_(torch.cat([b.detach().t(), self.queue[:, b.shape[0] :]], 1))
        return poptorch.identity_loss(loss, reduction="mean")


options = poptorch.Options()
model = Clip().train()
optimizer = poptorch.optim.AdamW(model.parameters(), lr=1e-4, bias_correction=False)
port = poptorch.trainingModel(model, options, optimizer)
warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 100))
for step in range(1000):
    loss = port(torch.randn(8, 16), torch.randn(8, 16))
    warmup.step()
    port.setOptimizer(optimizer)
    if step % 100 == 0:
        print(f"{step}: {loss.item():.3f}")
