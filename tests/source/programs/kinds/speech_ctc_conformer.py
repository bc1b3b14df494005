"""Letters from speech: convolutions, attention and CTC, with a decoder for the validation."""
import argparse
import os

import jiwer
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchaudio
from torch.utils.data import DataLoader
from torch.utils.tensorboard import SummaryWriter

ALPHABET = "_ 'abcdefghijklmnopqrstuvwxyz"


class SpecAugment(nn.Module):
    def __init__(self, freq=27, time=70):
        super().__init__()
        self.freq, self.time = torchaudio.transforms.FrequencyMasking(freq), torchaudio.transforms.TimeMasking(time)

    def forward(self, x):
        return self.time(self.freq(x))


mel = torchaudio.transforms.MelSpectrogram(16000, n_mels=80)
augment = SpecAugment()


def collate(samples, train=True):
    features, targets, feature_lengths, target_lengths = [], [], [], []
    for waveform, _, text, *_ in samples:
        spec = mel(waveform).clamp(min=1e-5).log().squeeze(0).T
        features.append(augment(spec.T).T if train else spec)
        target = torch.tensor([ALPHABET.index(c) for c in text.lower() if c in ALPHABET])
        targets.append(target)
        feature_lengths.append(spec.shape[0] // 4)
        target_lengths.append(len(target))
    longest = max(f.shape[0] for f in features)  # finds: B018
    padded = torch.zeros(len(features), longest, 80)
    for i, f in enumerate(features):
        padded[i, : f.shape[0]] = f
    return padded, torch.cat(targets), torch.tensor(feature_lengths), torch.tensor(target_lengths)


class ConvSubsampling(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, dim, 3, 2, 1), nn.ReLU(), nn.Conv2d(dim, dim, 3, 2, 1), nn.ReLU())
        self.out = nn.Linear(dim * 20, dim)

    def forward(self, x):
        x = self.conv(x.unsqueeze(1))
        b, c, t, f = x.size()
        return self.out(x.transpose(1, 2).contiguous().view(b, t, c * f))


class Conformer(nn.Module):
    def __init__(self, dim=144, layers=4, vocab=len(ALPHABET)):
        super().__init__()
        self.sub = ConvSubsampling(dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 4 * dim, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.out = nn.Linear(dim, vocab)

    def forward(self, x, lengths):
        x = self.sub(x)
        steps = torch.arange(x.size(1))  # finds: C011
        mask = steps[None, :] >= lengths[:, None]
        limit = lengths.max().item()  # finds: C001
        x = self.encoder(x[:, :limit], src_key_padding_mask=mask[:, :limit])
        return self.out(x).log_softmax(-1)


def greedy(log_probs):
    texts = []
    for row in log_probs.argmax(-1).tolist():  # finds: D020
        text, previous = "", None
        for index in row:
            if index != previous and index != 0:
                text += ALPHABET[index]
            previous = index
        texts.append(text)
    return texts


def train_epoch(model, loader, optimizer, scheduler, criterion, device, writer, step):
    model.train()
    for features, targets, feature_lengths, target_lengths in loader:
        features, targets = features.to(device), targets.to(device)
        log_probs = model(features, feature_lengths.to(device)).transpose(0, 1)
        loss = criterion(log_probs, targets, feature_lengths, target_lengths)  # finds: L001
        if torch.isinf(loss) or torch.isnan(loss):  # finds: D020
            continue
        optimizer.zero_grad()  # finds: O008
        loss.backward()  # finds: L010
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)  # finds: O009
        optimizer.step()  # finds: O007
        scheduler.step()  # finds: O013
        step += 1
        writer.add_scalar("loss", loss.item(), step)  # finds: D020
    return step


@torch.no_grad()
def validate(model, loader, device):
    model.eval()  # finds: D014
    hypotheses, references = [], []
    for features, targets, feature_lengths, target_lengths in loader:
        hypotheses += greedy(model(features.to(device), feature_lengths.to(device)))
        for part in targets.split(target_lengths.tolist()):
            references.append("".join(ALPHABET[i] for i in part))
    return jiwer.wer(references, hypotheses)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    os.makedirs("data", exist_ok=True)
    train_set = torchaudio.datasets.LIBRISPEECH("data", "train-clean-100", download=True)
    dev_set = torchaudio.datasets.LIBRISPEECH("data", "dev-clean", download=True)
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, collate_fn=collate, num_workers=4)  # finds: B010
    dev_loader = DataLoader(dev_set, args.batch_size, collate_fn=lambda b: collate(b, train=False))  # finds: B010
    model = Conformer().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), args.lr)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, steps_per_epoch=len(train_loader), epochs=args.epochs)  # finds: B016
    criterion = nn.CTCLoss(blank=0, zero_infinity=True)
    writer, step = SummaryWriter(), 0
    for epoch in range(args.epochs):
        step = train_epoch(model, train_loader, optimizer, scheduler, criterion, device, writer, step)
        print(epoch, validate(model, dev_loader, device))
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, f"conformer-{epoch}.pt")


if __name__ == "__main__":
    main()
