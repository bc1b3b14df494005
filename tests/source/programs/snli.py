import glob
import os
import time

import torch
import torch.nn as nn
import torch.optim as O
from torchtext import data, datasets

from util import get_args, makedirs


class Bottle(nn.Module):
    def forward(self, input):
        if len(input.size()) <= 2:
            return super(Bottle, self).forward(input)
        size = input.size()[:2]
        out = super(Bottle, self).forward(input.view(size[0] * size[1], -1))
        return out.view(size[0], size[1], -1)


class Linear(Bottle, nn.Linear):
    pass


class Encoder(nn.Module):
    def __init__(self, config):
        super(Encoder, self).__init__()
        self.config = config
        self.rnn = nn.LSTM(input_size=config.d_proj, hidden_size=config.d_hidden, num_layers=config.n_layers)

    def forward(self, inputs):
        batch_size = inputs.size()[1]
        state_shape = self.config.n_cells, batch_size, self.config.d_hidden
        h0 = c0 = inputs.new_zeros(state_shape)
        outputs, (ht, ct) = self.rnn(inputs, (h0, c0))
        return ht[-1]


class SNLIClassifier(nn.Module):
    def __init__(self, config):
        super(SNLIClassifier, self).__init__()
        self.config = config
        self.embed = nn.Embedding(config.n_embed, config.d_embed)
        self.projection = Linear(config.d_embed, config.d_proj)
        self.encoder = Encoder(config)
        self.out = Linear(2 * config.d_hidden, config.d_out)

    def forward(self, batch):
        prem_embed = self.projection(self.embed(batch.premise))
        hypo_embed = self.projection(self.embed(batch.hypothesis))
        premise = self.encoder(prem_embed)
        hypothesis = self.encoder(hypo_embed)
        return self.out(torch.cat([premise, hypothesis], 1))


args = get_args()
if torch.cuda.is_available():
    torch.cuda.set_device(args.gpu)
    device = torch.device("cuda:{}".format(args.gpu))
else:
    device = torch.device("cpu")

inputs = data.Field(lower=args.lower, tokenize="spacy")
answers = data.Field(sequential=False)
train, dev, test = datasets.SNLI.splits(inputs, answers)
inputs.build_vocab(train, dev, test)
answers.build_vocab(train)
train_iter, dev_iter, test_iter = data.BucketIterator.splits((train, dev, test), batch_size=args.batch_size, device=device)  # finds: B018

config = args
config.n_embed = len(inputs.vocab)
config.d_out = len(answers.vocab)
model = SNLIClassifier(config)
model.to(device)
criterion = nn.CrossEntropyLoss()
opt = O.Adam(model.parameters(), lr=args.lr)

iterations = 0
start = time.time()
best_dev_acc = -1
makedirs(args.save_path)

for epoch in range(args.epochs):
    train_iter.init_epoch()
    n_correct, n_total = 0, 0
    for batch_idx, batch in enumerate(train_iter):
        model.train()
        opt.zero_grad()  # finds: O008
        iterations += 1
        answer = model(batch)
        n_correct += (torch.max(answer, 1)[1].view(batch.label.size()) == batch.label).sum().item()  # finds: D020
        n_total += batch.batch_size
        train_acc = 100.0 * n_correct / n_total
        loss = criterion(answer, batch.label)  # finds: L001
        loss.backward()  # finds: L010
        opt.step()  # finds: O007

        if iterations % args.save_every == 0:
            snapshot_prefix = os.path.join(args.save_path, "snapshot")
            snapshot_path = snapshot_prefix + "_loss_{:.6f}_iter_{}_model.pt".format(loss.item(), iterations)
            torch.save(model, snapshot_path)  # finds: K005
            for f in glob.glob(snapshot_prefix + "*"):
                if f != snapshot_path:
                    os.remove(f)

        if iterations % args.dev_every == 0:
            model.eval()  # finds: D014
            n_dev_correct = 0
            with torch.no_grad():
                for dev_batch_idx, dev_batch in enumerate(dev_iter):
                    answer = model(dev_batch)
                    n_dev_correct += (torch.max(answer, 1)[1] == dev_batch.label).sum().item()  # finds: D020
            dev_acc = 100.0 * n_dev_correct / len(dev)
            if dev_acc > best_dev_acc:
                best_dev_acc = dev_acc
                torch.save(model, os.path.join(args.save_path, "best_snapshot.pt"))  # finds: K005
            print(time.time() - start, epoch, loss.item(), train_acc, dev_acc)
