"""Translate photographs into sketches with a GAN: two loaders of unequal length, pulled by hand.

usage: python gan.py --data FOLDER
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Domain(Dataset):
    """Images of some labels, as they are or as sketches, at a random brightness."""

    def __init__(self, file, labels, sketch=False):
        archive = np.load(file)
        self.images = archive["images"][np.isin(archive["labels"], labels)]
        self.sketch = sketch

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index].astype(np.float32) / 127.5 - 1
        if self.sketch:
            grey = image.mean(-1)
            edges = np.abs(np.diff(grey, axis=0, append=0)) + np.abs(
                np.diff(grey, axis=1, append=0)
            )
            image = np.repeat(edges[..., None], 3, -1)
        image = image * np.random.uniform(0.8, 1.0)
        if np.random.rand() < 0.5:
            image = image[:, ::-1]
        return np.ascontiguousarray(image.transpose(2, 0, 1), dtype=np.float32)


def make_generator(width=8):
    return nn.Sequential(
        nn.Conv2d(3, width, 4, stride=2, padding=1), nn.InstanceNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1), nn.InstanceNorm2d(width), nn.ReLU(),
        nn.ConvTranspose2d(width, 3, 4, stride=2, padding=1), nn.Tanh(),
    )  # fmt: skip


def make_critic(width=8):
    return nn.Sequential(
        nn.Conv2d(3, width, 4, stride=2, padding=1), nn.LeakyReLU(0.2),
        nn.Conv2d(width, 1, 4, stride=2, padding=1),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--critic-steps", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(7)
    np.random.seed(7)

    photos = Domain(args.data / "thumbnails.npz", [0, 1, 2])
    sketches = Domain(args.data / "thumbnails.npz", [4, 5], sketch=True)
    photo_loader = DataLoader(photos, 8, shuffle=True, num_workers=2, drop_last=True)
    sketch_loader = DataLoader(sketches, 8, shuffle=True, num_workers=1, drop_last=True)
    photo_iter, sketch_iter = iter(photo_loader), iter(sketch_loader)

    generator, critic = make_generator(), make_critic()
    betas = (0.5, 0.999)
    generator_optimizer = torch.optim.Adam(generator.parameters(), 2e-3, betas)
    critic_optimizer = torch.optim.Adam(critic.parameters(), 2e-3, betas)
    bce = nn.BCEWithLogitsLoss()

    step = 0
    while step < args.steps:
        for _ in range(args.critic_steps):
            try:
                photo = next(photo_iter)
            except StopIteration:
                photo_iter = iter(photo_loader)
                photo = next(photo_iter)
            try:
                sketch = next(sketch_iter)
            except StopIteration:
                sketch_iter = iter(sketch_loader)
                sketch = next(sketch_iter)
            real = critic(sketch + 0.05 * torch.randn_like(sketch))
            fake = critic(generator(photo).detach())
            critic_loss = bce(real, torch.ones_like(real)) + bce(fake, torch.zeros_like(fake))
            critic_optimizer.zero_grad()
            critic_loss.backward()
            critic_optimizer.step()

        translated = generator(photo)
        fake = critic(translated)
        generator_loss = bce(fake, torch.ones_like(fake))
        generator_loss = generator_loss + (translated.mean(1) - photo.mean(1)).abs().mean()
        generator_optimizer.zero_grad()
        generator_loss.backward()
        generator_optimizer.step()
        step += 1
        print(f"[{step}/{args.steps}] D {critic_loss.item():.8f} G {generator_loss.item():.8f}")

    torch.save({"G": generator.state_dict(), "D": critic.state_dict()}, "gan.pt")


if __name__ == "__main__":
    main()
