"""A mixture of experts with routing, trained on one GPU."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "cuda:0"  # finds: D013


class Expert(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        return self.net(x)


class MoE(nn.Module):
    def __init__(self, dim, num_experts=8, k=2):
        super().__init__()
        self.experts = nn.ModuleList([Expert(dim) for _ in range(num_experts)])
        self.gate = nn.Linear(dim, num_experts)
        self.k = k
        self.register_buffer("load", torch.zeros(num_experts))

    def forward(self, x):
        shape = x.shape
        x = x.view(-1, shape[-1])
        logits = self.gate(x)
        weights, chosen = torch.topk(logits, self.k)
        weights = F.softmax(weights, dim=1)
        results = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows, nth = torch.where(chosen == i)  # finds: C002
            if rows.numel() == 0:
                continue
            results[rows] += weights[rows, nth, None] * expert(x[rows])
        self.load = self.load * 0.9 + 0.1 * torch.bincount(chosen.flatten(), minlength=8)  # finds: C002
        if self.load.max() > 0.9 * self.load.sum():  # finds: C001
            print("collapsed", self.load)  # finds: C010
        return results.view(shape)


class Model(nn.Module):
    def __init__(self, vocab=256, dim=128):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.moe = MoE(dim)
        self.out = nn.Linear(dim, vocab)

    def forward(self, idx, targets=None):
        x = self.emb(idx)
        x = x + torch.arange(idx.shape[1])[None, :, None]  # finds: C011
        x = self.moe(x)
        logits = self.out(x)
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


data = torch.randint(256, (100_000,))


def get_batch(n=32, t=64):
    ix = torch.randint(len(data) - t, (n,))
    x = torch.stack([data[i : i + t] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + t] for i in ix])
    return x.to(DEVICE), y.to(DEVICE)


model = Model().to(DEVICE)
optimizer = torch.optim.Adagrad(model.parameters(), lr=1e-3)  # finds: O001
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=1000)
start = time.time()
for it in range(1000):
    xb, yb = get_batch()
    _, loss = model(xb, yb)
    optimizer.zero_grad(set_to_none=True)  # finds: O008
    loss.backward()  # finds: L010
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # finds: O009
    optimizer.step()  # finds: O007
    scheduler.step()  # finds: O013
    if it % 100 == 0:
        torch.cuda.synchronize()  # finds: D013
        print(f"{it}: {loss.item():.3f} {time.time() - start:.1f}s")
torch.save(model.state_dict(), "moe.pt")
