"""The layers that published models are made of: each infers and trains on the device as it does on the host."""

import copy
import math

import poptorch
import torch
import torch.nn.functional as F
from torch import nn


class ShiftedWindows(nn.Module):
    """Attention within shifted windows, with a table of relative positions."""

    def __init__(self, width=8, window=4):
        super().__init__()
        self.window, self.query_key_value = window, nn.Linear(width, 3 * width)
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, 2) * 0.02)
        places = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        distances = places[:, :, None] - places[:, None] + window - 1
        self.register_buffer("index", distances[0] * (2 * window - 1) + distances[1])

    def forward(self, x):
        batch, height, width, channels = x.shape
        size, rows, columns = self.window, height // self.window, width // self.window
        x = torch.roll(x, shifts=(-2, -2), dims=(1, 2)).view(batch, rows, size, columns, size, channels)
        x = x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, size * size, channels)
        parts = self.query_key_value(x).reshape(-1, size * size, 3, 2, channels // 2)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        bias = self.table[self.index.view(-1)].view(size * size, size * size, -1).permute(2, 0, 1)
        weights = (query @ key.transpose(-2, -1) + bias.unsqueeze(0)).softmax(dim=-1)
        x = (weights @ value).transpose(1, 2).reshape(batch, rows, columns, size, size, channels)
        return torch.roll(x.permute(0, 1, 3, 2, 4, 5).reshape(batch, height, width, channels), (2, 2), (1, 2))


class RelativeBuckets(nn.Module):
    """Attention with logarithmic buckets of distances, scale-only norms and a gated feed-forward part."""

    def __init__(self, width=8):
        super().__init__()
        self.bias, self.scale = nn.Embedding(8, 1), nn.Parameter(torch.ones(width))
        self.query, self.value = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up, self.down = nn.Linear(width, 16), nn.Linear(width, 16), nn.Linear(16, width)

    def bucket(self, distance):
        far = (distance > 0).to(torch.long) * 4
        distance = distance.abs()
        logarithmic = 2 + (torch.log(distance.float().clamp(min=1) / 2) / math.log(4) * 2).to(torch.long)
        return far + torch.where(distance < 2, distance, logarithmic.clamp(max=3))

    def norm(self, x):
        return self.scale * (x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6))

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device)
        bias = self.bias(self.bucket(places[None, :] - places[:, None]))[..., 0]
        scores = self.query(self.norm(x)) @ x.transpose(1, 2) + bias
        x = x + F.softmax(scores.float(), dim=-1).type_as(x) @ self.value(x)
        return x + self.down(F.gelu(self.gate(self.norm(x)), approximate="tanh") * self.up(x))


class Molecules(nn.Module):
    """Messages between atoms, weighted by their distances and gathered with a scatter."""

    def __init__(self):
        super().__init__()
        self.atoms, self.filters, self.output = nn.Embedding(10, 8, padding_idx=0), nn.Linear(6, 8), nn.Linear(8, 1)
        self.register_buffer("centres", torch.linspace(0, 5, 6))

    def forward(self, kinds, positions, sources, targets):
        distances = (positions[sources] - positions[targets]).norm(dim=-1)
        smeared = torch.exp(-((distances[:, None] - self.centres) ** 2))
        weights = (F.softplus(self.filters(smeared)) - math.log(2.0)) * (distances < 5).float()[:, None]
        hidden = self.atoms(kinds)
        messages = hidden[sources] * weights
        hidden = hidden + torch.zeros_like(hidden).scatter_add(0, targets[:, None].expand_as(messages), messages)
        return self.output(F.elu(hidden)).sum(dim=0)


class Detector(nn.Module):
    """Pools of several sizes, a grid of boxes, nearest and bilinear upsampling."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm, self.boxes = nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.Conv2d(12, 10, 1)
        self.pools = nn.ModuleList(nn.MaxPool2d(size, 1, size // 2) for size in (3, 5))

    def forward(self, x):
        x = F.mish(self.norm(self.stem(x)))
        output = self.boxes(torch.cat([x] + [pool(x) for pool in self.pools], dim=1))
        batch, _, height, width = output.shape
        output = output.view(batch, 2, 5, height, width).permute(0, 1, 3, 4, 2)
        rows, columns = torch.meshgrid(
            torch.arange(height, device=x.device), torch.arange(width, device=x.device), indexing="ij"
        )
        grid = torch.stack((columns, rows), dim=2).view(1, 1, height, width, 2).float()
        centres = (output[..., 0:2].sigmoid() * 2 - 0.5 + grid) * 8
        upsampled = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False).mean()
        boxes = torch.cat((centres, (output[..., 2:4].sigmoid() * 2) ** 2, output[..., 4:].sigmoid()), dim=-1)
        return boxes.view(batch, -1, 5) + upsampled + F.interpolate(x, scale_factor=2, mode="nearest").amax()


class MaskedPatches(nn.Module):
    """Patches chosen by sorting noise, left out, and put back in their places."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(4, 6), nn.Linear(6, 4)
        self.mask = nn.Parameter(torch.zeros(1, 1, 6))

    def forward(self, x, noise):
        order = torch.argsort(noise, dim=1)
        back = torch.argsort(order, dim=1)
        kept = torch.gather(self.encode(x), 1, order[:, :3, None].repeat(1, 1, 6))
        hidden = torch.cat([kept, self.mask.repeat(x.shape[0], x.shape[1] - 3, 1)], dim=1)
        hidden = torch.gather(hidden, 1, back[..., None].repeat(1, 1, 6))
        missing = (back >= 3).float()
        return (((self.decode(hidden) - x) ** 2).mean(dim=-1) * missing).sum(dim=1) / missing.sum(dim=1)


class Volumes(nn.Module):
    """Convolutions in three dimensions with a skip connection."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv3d(1, 4, 3, padding=1), nn.InstanceNorm3d(4, affine=True)
        self.low, self.up, self.output = (
            nn.Conv3d(4, 6, 3, padding=1),
            nn.ConvTranspose3d(6, 4, 2, 2),
            nn.Conv3d(8, 2, 1),
        )

    def forward(self, x):
        high = F.leaky_relu(self.norm(self.first(x)))
        return self.output(torch.cat([high, self.up(F.relu(self.low(F.max_pool3d(high, 2))))], dim=1))


class Speech(nn.Module):
    """Strided and grouped convolutions over a signal, a mask of lengths, a recurrent layer."""

    def __init__(self):
        super().__init__()
        self.features, self.norm = nn.Conv1d(1, 8, 10, 5, bias=False), nn.GroupNorm(8, 8)
        self.places, self.gate = nn.Conv1d(8, 8, 3, padding=1, groups=4), nn.Conv1d(8, 16, 1)
        self.memory, self.output = nn.LSTM(8, 6, batch_first=True), nn.ConvTranspose1d(6, 2, 4, 2, 1)

    def forward(self, signal, lengths):
        hidden = F.gelu(self.norm(self.features(signal)))
        hidden = F.glu(self.gate(hidden + F.silu(self.places(hidden))), dim=1).transpose(1, 2)
        mask = torch.arange(hidden.shape[1], device=signal.device)[None] < lengths[:, None]
        hidden, _state = self.memory(hidden.masked_fill(~mask[..., None], 0.0))
        return self.output(hidden.transpose(1, 2))


class WithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *inputs):
        output = self.model(*inputs)
        return output, poptorch.identity_loss((output**2).mean(), reduction="none")


def variables(model):
    """What training changes on the device: integers are constants there."""
    return {name: value for name, value in model.state_dict().items() if value.is_floating_point()}


def compare(model, *inputs):
    on_the_device, on_the_host = WithLoss(model.train()), WithLoss(copy.deepcopy(model).train())
    executor = poptorch.trainingModel(on_the_device, optimizer=torch.optim.SGD(model.parameters(), lr=0.01))
    optimizer = torch.optim.SGD(on_the_host.parameters(), lr=0.01)
    for _step in range(2):
        output, loss = executor(*inputs)
        expected_output, expected_loss = on_the_host(*inputs)
        optimizer.zero_grad()
        expected_loss.backward()
        optimizer.step()
    torch.testing.assert_close((output, loss), (expected_output.detach(), expected_loss.detach()), rtol=1e-3, atol=1e-4)
    executor.destroy()
    torch.testing.assert_close(variables(on_the_device), variables(on_the_host), rtol=1e-3, atol=1e-4)
    result = poptorch.inferenceModel(model.eval())(*inputs)
    torch.testing.assert_close(result, model(*inputs).detach(), rtol=1e-3, atol=1e-4)
    print(type(model).__name__, "equal")


if __name__ == "__main__":
    torch.manual_seed(0)
    compare(ShiftedWindows(), torch.randn(1, 8, 8, 8))
    compare(RelativeBuckets(), torch.randn(2, 6, 8))
    bonds = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    compare(Molecules(), torch.randint(1, 10, (5,)), torch.randn(5, 3), bonds[0], bonds[1])
    compare(Detector(), torch.randn(2, 3, 16, 16))
    compare(MaskedPatches(), torch.randn(2, 6, 4), torch.rand(2, 6))
    compare(Volumes(), torch.randn(1, 1, 4, 4, 4))
    compare(Speech(), torch.randn(2, 1, 80), torch.tensor([15, 8]))
