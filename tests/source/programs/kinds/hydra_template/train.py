import logging

import hydra
import torch
import torch.nn.functional as F
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

log = logging.getLogger(__name__)


@torch.no_grad()
def validate(model, loader, device):
    model.eval()  # finds: D014
    hits, total = 0.0, 0
    for x, y in loader:
        scores = model(x.to(device)).sigmoid()
        hits += ((scores > 0.5) == y.to(device).bool()).float().mean().item()  # finds: D020
        total += 1
    model.train()
    return hits / total


def train_one_epoch(cfg, model, loader, optimizer, device, epoch):
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad(set_to_none=True)  # finds: O008
        loss = F.binary_cross_entropy_with_logits(model(x), y)  # finds: L001
        loss.backward()  # finds: L010
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # finds: O009
        optimizer.step()  # finds: O007
        if i % cfg.log_every == 0:
            log.info("epoch %d step %d loss %.4f", epoch, i, loss.item())


@hydra.main(version_base="1.3", config_path="configs", config_name="train")
def main(cfg: DictConfig) -> float:
    log.info(OmegaConf.to_yaml(cfg))
    torch.manual_seed(cfg.seed)
    device = torch.device(cfg.device)
    train_loader, val_loader = instantiate(cfg.data)
    model = instantiate(cfg.model).to(device)
    optimizer = instantiate(cfg.optimizer)(model.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.epochs)
    best = 0.0
    for epoch in range(cfg.epochs):
        train_one_epoch(cfg, model, train_loader, optimizer, device, epoch)
        scheduler.step()  # finds: O013
        score = validate(model, val_loader, device)
        if score > best:
            best = score
            torch.save(model.state_dict(), "best.pt")
        log.info("epoch %d accuracy %.4f", epoch, score)
    return best


if __name__ == "__main__":
    main()
