import torch
from torch import nn
import poptorch


from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

LONGEST = 64


class Words(Dataset):
    def __init__(self, texts):
        self.texts = texts

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return torch.tensor(self.texts[index][:LONGEST]), len(self.texts[index]) % 2


def collate(samples):
    texts, labels = zip(*samples)
    padded = pad_sequence(list(texts), batch_first=True)
    padded = nn.functional.pad(padded, (0, LONGEST - padded.shape[1]))
    return padded, torch.tensor(labels)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(1000, 32, padding_idx=0)
        self.lstm = nn.LSTM(32, 32, batch_first=True)
        self.head = nn.Linear(32, 2)

    def forward(self, tokens, labels=None):
        mask = (tokens != 0).unsqueeze(-1)
        with poptorch.autocast(dtype=torch.float16):
            hidden, (h, c) = self.lstm(self.embedding(tokens))
            pooled = torch.where(mask, hidden, torch.zeros_like(hidden)).sum(1) / mask.sum(1).clamp(min=1)
            logits = self.head(pooled)
        if labels is None:
            return logits
        return logits, nn.functional.cross_entropy(logits.float(), labels)


options = poptorch.Options()
loader = poptorch.DataLoader(options, Words([[1, 2, 3]] * 64), batch_size=4, collate_fn=collate, drop_last=True)
model = Tagger()
port = poptorch.trainingModel(model, options, poptorch.optim.Adam(model.parameters(), lr=1e-3))
for tokens, labels in loader:
    logits, loss = port(tokens, labels)
