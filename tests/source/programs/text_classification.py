import time

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader

from corpus import load_reviews

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
train_set, valid_set, vocab = load_reviews()


def collate_batch(batch):
    labels = torch.tensor([label for _, label in batch], dtype=torch.float)
    lengths = torch.tensor([len(text) for text, _ in batch])
    texts = pad_sequence([text for text, _ in batch], batch_first=True)  # finds: B018
    return texts.to(device), labels.to(device), lengths


class LSTMClassifier(nn.Module):
    def __init__(self, vocab_size, embed_dim=128, hidden=256):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim, padding_idx=0)
        self.lstm = nn.LSTM(embed_dim, hidden, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * hidden, 1)

    def forward(self, text, lengths):
        packed = pack_padded_sequence(self.embedding(text), lengths.cpu(), batch_first=True, enforce_sorted=False)  # finds: C002, C004
        _, (h, _) = self.lstm(packed)
        return self.fc(torch.cat((h[-2], h[-1]), dim=1)).squeeze(1)


def binary_accuracy(preds, y):
    return ((torch.sigmoid(preds) > 0.5) == y).float().mean()


def run(model, loader, criterion, optimizer=None):
    training = optimizer is not None
    model.train(training)
    epoch_loss, epoch_acc = 0.0, 0.0
    for texts, labels, lengths in loader:
        preds = model(texts, lengths)
        loss = criterion(preds, labels)  # finds: L001
        if training:
            optimizer.zero_grad()  # finds: O008
            loss.backward()  # finds: L010
            optimizer.step()  # finds: O007
        epoch_loss += loss.item()  # finds: D020
        epoch_acc += binary_accuracy(preds, labels).item()  # finds: D020
    return epoch_loss / len(loader), epoch_acc / len(loader)


train_loader = DataLoader(train_set, batch_size=64, shuffle=True, collate_fn=collate_batch)  # finds: B010
valid_loader = DataLoader(valid_set, batch_size=64, collate_fn=collate_batch)  # finds: B010
model = LSTMClassifier(len(vocab)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.BCEWithLogitsLoss().to(device)
for epoch in range(5):
    t = time.time()
    train_loss, train_acc = run(model, train_loader, criterion, optimizer)
    with torch.no_grad():
        valid_loss, valid_acc = run(model, valid_loader, criterion)
    print(epoch, time.time() - t, train_loss, train_acc, valid_loss, valid_acc)
torch.save(model.state_dict(), "lstm.pt")
