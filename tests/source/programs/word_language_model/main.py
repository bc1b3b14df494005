import argparse
import math
import time

import torch
import torch.nn as nn

import data
import model

parser = argparse.ArgumentParser(description="PyTorch Wikitext-2 RNN Language Model")
parser.add_argument("--data", type=str, default="./data/wikitext-2")
parser.add_argument("--emsize", type=int, default=200)
parser.add_argument("--nhid", type=int, default=200)
parser.add_argument("--nlayers", type=int, default=2)
parser.add_argument("--lr", type=float, default=20)
parser.add_argument("--clip", type=float, default=0.25)
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--batch_size", type=int, default=20)
parser.add_argument("--bptt", type=int, default=35)
parser.add_argument("--tied", action="store_true")
parser.add_argument("--log-interval", type=int, default=200)
parser.add_argument("--save", type=str, default="model.pt")
args = parser.parse_args()

torch.manual_seed(1111)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
corpus = data.Corpus(args.data)


def batchify(source, bsz):
    nbatch = source.size(0) // bsz
    source = source.narrow(0, 0, nbatch * bsz)
    source = source.view(bsz, -1).t().contiguous()
    return source.to(device)


train_data = batchify(corpus.train, args.batch_size)
val_data = batchify(corpus.valid, 10)
ntokens = len(corpus.dictionary)
model = model.RNNModel(ntokens, args.emsize, args.nhid, args.nlayers, 0.2, args.tied).to(device)
criterion = nn.NLLLoss()


def repackage_hidden(h):
    """Wraps hidden states in new Tensors, to detach them from their history."""
    if isinstance(h, torch.Tensor):
        return h.detach()
    else:
        return tuple(repackage_hidden(v) for v in h)


def get_batch(source, i):
    seq_len = min(args.bptt, len(source) - 1 - i)  # finds: B018
    data = source[i : i + seq_len]
    target = source[i + 1 : i + 1 + seq_len].view(-1)
    return data, target


def evaluate(data_source):
    model.eval()  # finds: D014
    total_loss = 0.0
    hidden = model.init_hidden(10)
    with torch.no_grad():
        for i in range(0, data_source.size(0) - 1, args.bptt):
            data, targets = get_batch(data_source, i)
            output, hidden = model(data, hidden)
            hidden = repackage_hidden(hidden)  # finds: B019
            total_loss += len(data) * criterion(output, targets).item()  # finds: D020
    return total_loss / (len(data_source) - 1)


def train():
    model.train()
    total_loss = 0.0
    start_time = time.time()
    hidden = model.init_hidden(args.batch_size)
    for batch, i in enumerate(range(0, train_data.size(0) - 1, args.bptt)):
        data, targets = get_batch(train_data, i)
        model.zero_grad()  # finds: O008
        hidden = repackage_hidden(hidden)  # finds: B019
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)  # finds: L001
        loss.backward()  # finds: L010

        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)  # finds: O009
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)  # finds: O015

        total_loss += loss.item()  # finds: D020
        if batch % args.log_interval == 0 and batch > 0:
            cur_loss = total_loss / args.log_interval
            elapsed = time.time() - start_time
            print("| epoch {:3d} | ms/batch {:5.2f} | loss {:5.2f}".format(epoch, elapsed, cur_loss))
            total_loss = 0
            start_time = time.time()


lr = args.lr
best_val_loss = None
try:
    for epoch in range(1, args.epochs + 1):
        train()
        val_loss = evaluate(val_data)
        print("valid ppl {:8.2f}".format(math.exp(val_loss)))
        if not best_val_loss or val_loss < best_val_loss:
            with open(args.save, "wb") as f:
                torch.save(model, f)  # finds: K005
            best_val_loss = val_loss
        else:
            lr /= 4.0
except KeyboardInterrupt:
    print("Exiting from training early")

with open(args.save, "rb") as f:
    model = torch.load(f)
