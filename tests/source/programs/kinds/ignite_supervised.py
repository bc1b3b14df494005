"""Sentiment of reviews with create_supervised_trainer: the library has the loop."""
import argparse
import random

import numpy as np
import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import LRScheduler, ModelCheckpoint
from ignite.metrics import Accuracy, Loss, Precision
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from torchtext.data.utils import get_tokenizer
from torchtext.datasets import IMDB
from torchtext.vocab import build_vocab_from_iterator

tokenizer = get_tokenizer("basic_english")
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)


class TextCNN(nn.Module):
    def __init__(self, vocab_size, embed=100, filters=100, sizes=(3, 4, 5)):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed, padding_idx=0, sparse=True)
        self.convs = [nn.Conv1d(embed, filters, k) for k in sizes]  # finds: C003
        self.fc = nn.Linear(filters * len(sizes), 1)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        h = self.embedding(x).transpose(1, 2)
        pooled = [torch.relu(conv(h)).max(dim=2).values for conv in self.convs]
        out = self.fc(self.dropout(torch.cat(pooled, dim=1))).squeeze(1)
        print("batch", out)  # finds: C010
        return out


def collate(vocab):
    def batch(samples):
        labels = torch.tensor([float(label == 2) for label, _ in samples])
        texts = [torch.tensor(vocab(tokenizer(text)))[:400] for _, text in samples]
        return pad_sequence(texts, batch_first=True), labels  # finds: B018

    return batch


def thresholded(output):
    y_pred, y = output
    return torch.round(torch.sigmoid(y_pred)), y


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    vocab = build_vocab_from_iterator((tokenizer(t) for _, t in IMDB(split="train")), min_freq=10, specials=["<pad>", "<unk>"])
    vocab.set_default_index(1)
    train_loader = DataLoader(list(IMDB(split="train")), args.batch_size, True, collate_fn=collate(vocab), num_workers=2)  # finds: B010
    test_loader = DataLoader(list(IMDB(split="test")), args.batch_size, collate_fn=collate(vocab), num_workers=2)  # finds: B010
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = TextCNN(len(vocab)).to(device)
    optimizer = torch.optim.SparseAdam(model.parameters(), lr=1e-3)  # finds: O001
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    criterion = nn.BCEWithLogitsLoss()
    trainer = create_supervised_trainer(model, optimizer, criterion, device=device)
    trainer.add_event_handler(Events.EPOCH_STARTED, LRScheduler(scheduler))  # finds: O013
    metrics = {"accuracy": Accuracy(thresholded), "precision": Precision(thresholded), "bce": Loss(criterion)}
    evaluator = create_supervised_evaluator(model, metrics=metrics, device=device)  # finds: D014

    @trainer.on(Events.ITERATION_COMPLETED(every=50))
    def log_training_loss(engine):
        print(f"epoch[{engine.state.epoch}] loss {engine.state.output:.3f}")

    @trainer.on(Events.EPOCH_COMPLETED)
    def log_validation(engine):
        evaluator.run(test_loader)
        print({k: round(v, 3) for k, v in evaluator.state.metrics.items()})

    handler = ModelCheckpoint("checkpoints", "textcnn", n_saved=2, create_dir=True, require_empty=False)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, handler, {"model": model})
    trainer.run(train_loader, max_epochs=args.epochs)


if __name__ == "__main__":
    main()
