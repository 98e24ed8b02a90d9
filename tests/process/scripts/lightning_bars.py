"""Lightning's own bars over loops that last longer than a second: usage: lightning_bars.py BAR..."""

import logging
import sys
import time
import warnings

import lightning
import torch
from lightning.pytorch import callbacks
from torch import nn
from torch.utils.data import DataLoader

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = nn.Linear(4, 1)

    def training_step(self, batch, _):
        time.sleep(0.2)
        return self.model(batch).sum()

    def validation_step(self, batch, _):
        time.sleep(0.2)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


for kind in sys.argv[1:]:
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[getattr(callbacks, kind)()],
    )
    loaders = [DataLoader(torch.ones(28, 4), 4, num_workers=1) for _ in range(2)]
    trainer.fit(Module(), *loaders)
    print(f"end of {kind}")
