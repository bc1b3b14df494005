"""Speech synthesis in the manner of Tacotron: attention, teacher forcing, one process for each GPU."""
import argparse
import math
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from hparams import create_hparams
from text_mel import TextMelLoader


class TextMelCollate:
    def __init__(self, frames_per_step):
        self.frames_per_step = frames_per_step

    def __call__(self, batch):
        input_lengths, order = torch.sort(torch.LongTensor([len(x[0]) for x in batch]), dim=0, descending=True)
        text_padded = torch.LongTensor(len(batch), input_lengths[0])  # finds: B018
        text_padded.zero_()
        max_target = max(x[1].size(1) for x in batch)  # finds: B018
        if max_target % self.frames_per_step != 0:
            max_target += self.frames_per_step - max_target % self.frames_per_step
        mel_padded = torch.FloatTensor(len(batch), 80, max_target)
        mel_padded.zero_()
        gate_padded = torch.zeros(len(batch), max_target)
        for i, j in enumerate(order):
            text, mel = batch[j]
            text_padded[i, : text.size(0)] = text
            mel_padded[i, :, : mel.size(1)] = mel
            gate_padded[i, mel.size(1) - 1 :] = 1
        return text_padded, input_lengths, mel_padded, gate_padded


class Attention(nn.Module):
    def __init__(self, query, memory, dim=128):
        super().__init__()
        self.q, self.m, self.v = nn.Linear(query, dim), nn.Linear(memory, dim), nn.Linear(dim, 1)

    def forward(self, query, memory, mask):
        energies = self.v(torch.tanh(self.q(query).unsqueeze(1) + self.m(memory))).squeeze(-1)
        energies = energies.masked_fill(mask, -1e9)
        weights = F.softmax(energies, dim=1)
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1)


class Tacotron(nn.Module):
    def __init__(self, hparams):
        super().__init__()
        self.embedding = nn.Embedding(hparams.n_symbols, 512)
        bound = math.sqrt(3.0) * math.sqrt(2.0 / (hparams.n_symbols + 512))
        self.embedding.weight.data.uniform_(-bound, bound)
        self.encoder = nn.LSTM(512, 256, batch_first=True, bidirectional=True)
        self.prenet = nn.Linear(80, 256)
        self.cell = nn.LSTMCell(256 + 512, 1024)
        self.attention = Attention(1024, 512)
        self.mel, self.gate = nn.Linear(1024 + 512, 80), nn.Linear(1024 + 512, 1)

    def forward(self, text, lengths, mels):
        x = self.embedding(text)
        x = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True)  # finds: C002, C004
        memory, _ = nn.utils.rnn.pad_packed_sequence(self.encoder(x)[0], batch_first=True)
        mask = torch.arange(memory.size(1), device=text.device)[None] >= lengths[:, None]
        h, c = memory.new_zeros(text.size(0), 1024), memory.new_zeros(text.size(0), 1024)
        context = memory.new_zeros(text.size(0), 512)
        frame = memory.new_zeros(text.size(0), 80)
        outputs, gates = [], []
        for t in range(mels.size(2)):
            h, c = self.cell(torch.cat([F.dropout(F.relu(self.prenet(frame)), 0.5), context], 1), (h, c))
            context = self.attention(h, memory, mask)
            both = torch.cat([h, context], 1)
            outputs.append(self.mel(both))
            gates.append(self.gate(both))
            frame = mels[:, :, t]
        return torch.stack(outputs, 2), torch.cat(gates, 1)


class TacotronLoss(nn.Module):
    def forward(self, output, mel, gate):
        mel_out, gate_out = output
        return F.mse_loss(mel_out, mel) + F.binary_cross_entropy_with_logits(gate_out, gate)


def reduce_tensor(tensor, n_gpus):
    rt = tensor.clone()
    dist.all_reduce(rt, op=dist.ReduceOp.SUM)
    return rt / n_gpus


def validate(model, criterion, valset, iteration, hparams, collate_fn):
    model.eval()  # finds: D014
    with torch.no_grad():
        loader = DataLoader(valset, num_workers=1, shuffle=False, batch_size=hparams.batch_size, collate_fn=collate_fn)  # finds: B010
        total = 0.0
        for text, lengths, mel, gate in loader:
            output = model(text.cuda(), lengths.cuda(), mel.cuda())  # finds: D013
            total += criterion(output, mel.cuda(), gate.cuda()).item()  # finds: D013, D020
    model.train()
    print(f"Validation loss {iteration}: {total / len(loader):9f}")


def train(output_directory, checkpoint_path, n_gpus, rank, hparams):
    torch.cuda.set_device(rank % torch.cuda.device_count())  # finds: D013
    if n_gpus > 1:
        dist.init_process_group(backend="nccl", init_method="tcp://localhost:54321", world_size=n_gpus, rank=rank)  # finds: D018
    model = Tacotron(hparams).cuda()  # finds: D013
    if n_gpus > 1:
        model = DistributedDataParallel(model, device_ids=[rank])  # finds: D012
    optimizer = torch.optim.Adam(model.parameters(), lr=hparams.learning_rate, weight_decay=hparams.weight_decay)
    scaler = torch.cuda.amp.GradScaler()  # finds: O010
    criterion = TacotronLoss()
    trainset, valset = TextMelLoader(hparams.training_files), TextMelLoader(hparams.validation_files)
    collate_fn = TextMelCollate(hparams.n_frames_per_step)
    sampler = DistributedSampler(trainset) if n_gpus > 1 else None  # finds: B015
    train_loader = DataLoader(  # finds: B014
        trainset, num_workers=1, shuffle=sampler is None, sampler=sampler, batch_size=hparams.batch_size, drop_last=True,
        collate_fn=collate_fn,
    )
    iteration = 0
    if checkpoint_path is not None:
        checkpoint = torch.load(checkpoint_path, map_location="cpu")
        model.load_state_dict(checkpoint["state_dict"])
        iteration = checkpoint["iteration"]
    model.train()
    for epoch in range(iteration // len(train_loader), hparams.epochs):
        for text, lengths, mel, gate in train_loader:
            start = time.perf_counter()
            for group in optimizer.param_groups:
                group["lr"] = hparams.learning_rate * 0.999 ** (iteration / 100)  # finds: O013
            model.zero_grad()  # finds: O008
            with torch.cuda.amp.autocast():  # finds: P013
                output = model(text.cuda(), lengths.cuda(), mel.cuda())  # finds: D013
                loss = criterion(output, mel.cuda(), gate.cuda())  # finds: D013, L001
            reduced = reduce_tensor(loss.data, n_gpus).item() if n_gpus > 1 else loss.item()  # finds: D020
            scaler.scale(loss).backward()  # finds: L010
            scaler.unscale_(optimizer)  # finds: O010
            grad_norm = nn.utils.clip_grad_norm_(model.parameters(), hparams.grad_clip_thresh)  # finds: O009
            scaler.step(optimizer)  # finds: O007
            scaler.update()  # finds: O010
            if math.isnan(reduced):
                raise FloatingPointError("loss is no number")
            if rank == 0:
                print(f"{iteration} {reduced:.6f} {grad_norm:.6f} {time.perf_counter() - start:.2f}s")
            iteration += 1
        validate(model, criterion, valset, iteration, hparams, collate_fn)
        if rank == 0:
            state = {"iteration": iteration, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, os.path.join(output_directory, f"checkpoint_{iteration}"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-o", "--output_directory", required=True)
    parser.add_argument("-c", "--checkpoint_path", default=None)
    parser.add_argument("--n_gpus", type=int, default=1)
    parser.add_argument("--rank", type=int, default=0)
    args = parser.parse_args()
    train(args.output_directory, args.checkpoint_path, args.n_gpus, args.rank, create_hparams())
