"""Lightning's Trainer in four ways. usage: lightning_fit.py resume | limits | combined | ddp"""

import sys
import warnings
from pathlib import Path

import lightning
import material
import torch
from lightning.pytorch.utilities import CombinedLoader
from torch import nn
from torch.utils.data import DataLoader


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = material.Tiny()

    def loss_of(self, batch):
        inputs, targets = batch
        return nn.functional.cross_entropy(self.model(inputs), targets)

    def training_step(self, batch, batch_index):
        parts = batch.values() if isinstance(batch, dict) else [batch]
        loss = sum(self.loss_of(part) for part in parts if part is not None)
        if self.trainer.is_global_zero:
            material.tell("loss", self.current_epoch, batch_index, loss)
        return loss

    def validation_step(self, batch, batch_index):
        loss = self.loss_of(batch)
        if self.trainer.is_global_zero:
            material.tell("validation loss", self.trainer.sanity_checking, batch_index, loss)
        self.log("validation_loss", loss, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


class Pictures(lightning.LightningDataModule):
    def __init__(self, num_workers: int = 2) -> None:
        super().__init__()
        self.num_workers = num_workers

    def setup(self, stage: str) -> None:
        self.training = material.Pictures(160)
        self.validation = material.Pictures(48)

    def train_dataloader(self):
        return DataLoader(self.training, 16, shuffle=True, num_workers=self.num_workers)

    def val_dataloader(self):
        settings = {"num_workers": self.num_workers, "persistent_workers": self.num_workers > 0}
        return DataLoader(self.validation, 16, **settings)


def trainer(**settings) -> lightning.Trainer:
    return lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **settings,
    )


def resume() -> None:
    """A checkpoint after one epoch, then a new trainer that goes on from it."""
    saver = lightning.pytorch.callbacks.ModelCheckpoint("checkpoints", save_last=True)
    first = trainer(max_epochs=1, callbacks=[saver], num_sanity_val_steps=2, val_check_interval=0.5)
    first.fit(Module(), datamodule=Pictures())
    lightning.seed_everything(8, workers=True)
    second = trainer(max_epochs=2, callbacks=[saver], num_sanity_val_steps=2)
    second.fit(Module(), datamodule=Pictures(), ckpt_path=str(Path("checkpoints", "last.ckpt")))


def limits() -> None:
    warnings.filterwarnings("ignore", message=".*overfit_batches.*")
    module, pictures = Module(), Pictures()
    settings = {"max_epochs": 2, "use_distributed_sampler": True}
    trainer(overfit_batches=3, enable_checkpointing=False, **settings).fit(module, pictures)
    short = trainer(
        limit_train_batches=5, limit_val_batches=2, enable_checkpointing=False, **settings
    )
    short.fit(module, pictures)
    short.validate(module, pictures)
    trainer(max_epochs=1, enable_checkpointing=False).fit(module, Pictures(num_workers=0))


def combined() -> None:
    loaders = {
        "long": DataLoader(material.Pictures(96), 16, shuffle=True, num_workers=2),
        "short": DataLoader(material.Pictures(40), 8, shuffle=True, num_workers=2),
    }
    for mode in ("max_size_cycle", "min_size", "max_size"):
        alone = trainer(max_epochs=2, enable_checkpointing=False)
        alone.fit(Module(), CombinedLoader(loaders, mode))


def ddp() -> None:
    """Two ranks on gloo; the second is this script, started once more by Lightning."""
    two = trainer(max_epochs=2, devices=2, strategy="ddp", enable_checkpointing=False)
    two.fit(Module(), datamodule=Pictures())
    if not two.is_global_zero:
        sys.exit()


if __name__ == "__main__":
    material.begin()
    lightning.seed_everything(7, workers=True)
    {"resume": resume, "limits": limits, "combined": combined, "ddp": ddp}[sys.argv[1]]()
    material.end()
