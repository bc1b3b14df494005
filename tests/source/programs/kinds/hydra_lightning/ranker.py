import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from transformers import AutoModel, get_linear_schedule_with_warmup


def mean_pool(hidden, mask):
    mask = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-6)


def mine_hard_negatives(scores):
    with torch.no_grad():
        masked = scores.clone()
        masked.fill_diagonal_(float("-inf"))
        return masked.argmax(1)


class RankModule(pl.LightningModule):
    def __init__(self, lr, margin, total_steps, name="microsoft/mpnet-base"):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = AutoModel.from_pretrained(name)
        self.temperature = torch.nn.Parameter(torch.tensor(0.05))

    def embed(self, tokens):
        hidden = self.encoder(**tokens).last_hidden_state
        return F.normalize(mean_pool(hidden, tokens["attention_mask"]), dim=-1)

    def training_step(self, batch, batch_idx):
        queries, passages = self.embed(batch["query"]), self.embed(batch["passage"])
        scores = queries @ passages.T
        labels = torch.arange(scores.size(0), device=scores.device)
        loss = F.cross_entropy(scores / self.temperature.clamp(min=0.01), labels)
        negatives = mine_hard_negatives(scores)
        gap = scores.gather(1, negatives[:, None]).squeeze(1) - scores.diagonal() + self.hparams.margin
        violated = gap[gap > 0]  # finds: C002
        if len(violated):
            loss = loss + violated.mean()
        self.log("temperature", self.temperature.item())  # finds: D020
        self.log("loss", loss)
        return loss

    def on_after_backward(self):
        norm = sum(p.grad.norm() ** 2 for p in self.parameters() if p.grad is not None)  # finds: D009
        self.log("grad_norm", norm)

    def configure_optimizers(self):
        groups = [
            {"params": [p for n, p in self.named_parameters() if "bias" not in n], "weight_decay": 0.01},
            {"params": [p for n, p in self.named_parameters() if "bias" in n], "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=self.hparams.lr)
        scheduler = get_linear_schedule_with_warmup(optimizer, 100, self.hparams.total_steps)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]
