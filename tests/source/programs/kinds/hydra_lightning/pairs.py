import json

from torch.utils.data import DataLoader, Dataset
from transformers import AutoTokenizer


class Pairs(Dataset):
    def __init__(self, path):
        with open(path) as f:
            self.rows = [json.loads(line) for line in f]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]["query"], self.rows[i]["passage"]


class Collate:
    def __init__(self, name, max_len):
        self.tokenizer = AutoTokenizer.from_pretrained(name)
        self.max_len = max_len

    def __call__(self, rows):
        queries, passages = zip(*rows)
        return {
            "query": self.tokenizer(list(queries), padding=True, truncation=True, max_length=32, return_tensors="pt"),  # finds: B018
            "passage": self.tokenizer(
                list(passages), padding="max_length", truncation=True, max_length=self.max_len, return_tensors="pt"
            ),
        }


def make_loader(cfg):
    collate = Collate("microsoft/mpnet-base", cfg.max_len)
    return DataLoader(Pairs(cfg.train_file), cfg.batch_size, shuffle=True, collate_fn=collate, num_workers=4)  # finds: B010
