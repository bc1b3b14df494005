"""Character-level LSTM, trained on one text file."""
import sys

import torch
import torch.nn as nn

text = open(sys.argv[1]).read()
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
data = torch.tensor([stoi[c] for c in text])
seq_len, batch = 100, 32


class CharRNN(nn.Module):
    def __init__(self, vocab, hidden=256):
        super().__init__()
        self.emb = nn.Embedding(vocab, hidden)
        self.lstm = nn.LSTM(hidden, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, vocab)

    def forward(self, x, state=None):
        out, state = self.lstm(self.emb(x), state)
        return self.fc(out), state


def batches():
    n = (len(data) - 1) // (batch * seq_len)
    xs = data[: n * batch * seq_len].view(batch, -1)
    ys = data[1 : n * batch * seq_len + 1].view(batch, -1)
    for i in range(0, xs.size(1), seq_len):
        yield xs[:, i : i + seq_len], ys[:, i : i + seq_len]


model = CharRNN(len(chars))
optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3, alpha=0.95)
criterion = nn.CrossEntropyLoss()
for epoch in range(20):
    state = None
    for x, y in batches():
        logits, state = model(x, state)
        state = tuple(s.detach() for s in state)  # finds: B019
        loss = criterion(logits.reshape(-1, len(chars)), y.reshape(-1))  # finds: L001
        optimizer.zero_grad()  # finds: O008
        loss.backward()  # finds: L010
        nn.utils.clip_grad_value_(model.parameters(), 5)  # finds: O009
        optimizer.step()  # finds: O007
    print(epoch, float(loss))
