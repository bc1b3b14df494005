"""Spoken commands from raw waveforms, after the tutorial of torchaudio; waves have one length already."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
import torchaudio
from torchaudio.datasets import SPEECHCOMMANDS
from tqdm import tqdm

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LENGTH = 16000


class Subset(SPEECHCOMMANDS):
    def __init__(self, subset):
        super().__init__("./", download=True, subset=subset)


train_set, test_set = Subset("training"), Subset("testing")
labels = sorted({item[2] for item in train_set})
resample = torchaudio.transforms.Resample(orig_freq=16000, new_freq=8000).to(device)


def pad_to(wave, length=LENGTH):
    wave = wave[:, :length]
    return F.pad(wave, (0, length - wave.shape[1]))


def collate_fn(batch):
    tensors = torch.stack([pad_to(waveform) for waveform, *_ in batch])
    targets = torch.tensor([labels.index(label) for _, _, label, *_ in batch])
    return tensors, targets


loader_args = dict(batch_size=256, collate_fn=collate_fn)
if device.type == "cuda":
    loader_args.update(num_workers=1, pin_memory=True)
train_loader = torch.utils.data.DataLoader(train_set, shuffle=True, drop_last=True, **loader_args)  # finds: B014
test_loader = torch.utils.data.DataLoader(test_set, shuffle=False, drop_last=False, **loader_args)  # finds: B014


class M5(nn.Module):
    def __init__(self, n_input=1, n_output=35, stride=16, n_channel=32):
        super().__init__()
        self.conv1 = nn.Conv1d(n_input, n_channel, kernel_size=80, stride=stride)
        self.bn1 = nn.BatchNorm1d(n_channel)
        self.conv2 = nn.Conv1d(n_channel, 2 * n_channel, kernel_size=3)
        self.bn2 = nn.BatchNorm1d(2 * n_channel)
        self.fc1 = nn.Linear(2 * n_channel, n_output)

    def forward(self, x):
        x -= x.mean(dim=-1, keepdim=True)  # finds: C026
        x = F.max_pool1d(F.relu(self.bn1(self.conv1(x))), 4)
        x = F.max_pool1d(F.relu(self.bn2(self.conv2(x))), 4)
        x = F.avg_pool1d(x, x.shape[-1])
        return F.log_softmax(self.fc1(x.permute(0, 2, 1)), dim=2)


model = M5(n_output=len(labels)).to(device)
optimizer = optim.Adam(model.parameters(), lr=0.01, weight_decay=0.0001)
scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.1)
print("parameters", sum(p.numel() for p in model.parameters() if p.requires_grad))


def number_of_correct(pred, target):
    return pred.squeeze().eq(target).sum().item()  # finds: D020


def train(model, epoch, log_interval):
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        data = resample(data)
        output = model(data)
        loss = F.nll_loss(output.squeeze(), target)  # finds: L001
        optimizer.zero_grad()  # finds: O008
        loss.backward()  # finds: L010
        optimizer.step()  # finds: O007
        if batch_idx % log_interval == 0:
            print(f"Train Epoch: {epoch} [{batch_idx * len(data)}/{len(train_loader.dataset)}]\tLoss: {loss.item():.6f}")
        pbar.update(1 / (len(train_loader) + len(test_loader)))
        losses.append(loss.item())  # finds: D020


def test(model, epoch):
    model.eval()  # finds: D014
    correct = 0
    for data, target in test_loader:
        data, target = resample(data.to(device)), target.to(device)
        correct += number_of_correct(model(data).argmax(dim=-1), target)
    print(f"\nTest Epoch: {epoch}\tAccuracy: {correct / len(test_loader.dataset):.3f}", file=sys.stderr)


losses = []
with tqdm(total=10) as pbar:
    for epoch in range(1, 11):
        train(model, epoch, 20)
        test(model, epoch)
        scheduler.step()  # finds: O013
torch.jit.script(model).save("m5.pt")
