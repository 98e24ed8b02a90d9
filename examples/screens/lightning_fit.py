"""A LightningModule and its Trainer, with Lightning's own bar."""

import logging
import tempfile
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Noise(Dataset):
    def __len__(self):
        return 6_000

    def __getitem__(self, index):
        image = torch.rand(3, 64, 64)
        for _ in range(20):
            image = (image * 1.01).clamp(max=1.0)
        return image, index % 10


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(1800, 10)
        )

    def training_step(self, batch, number):
        x, y = batch
        return nn.functional.cross_entropy(self.model(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


if __name__ == "__main__":
    lightning.seed_everything(0, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_model_summary=False, default_root_dir=folder,
        )  # fmt: skip
        trainer.fit(Classifier(), DataLoader(Noise(), 32, shuffle=True, num_workers=2))
