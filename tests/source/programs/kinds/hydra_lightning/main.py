import hydra
import pytorch_lightning as pl
from omegaconf import DictConfig

from pairs import make_loader


@hydra.main(config_path="conf", config_name="config")
def main(cfg: DictConfig):
    pl.seed_everything(1)
    loader = make_loader(cfg.data)
    module = hydra.utils.instantiate(cfg.module, total_steps=len(loader) * cfg.trainer.max_epochs)  # finds: B016
    trainer = hydra.utils.instantiate(cfg.trainer)
    trainer.fit(module, loader)


if __name__ == "__main__":
    main()
