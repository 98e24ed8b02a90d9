"""Train a tiny language model on a memory map of tokens; stop and go on with --resume.

usage: python lm_tokens.py --data FOLDER [--max-iters N] [--resume]
"""

import argparse
import math
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

VOCABULARY = 64


class Blocks(Dataset):
    """`block_size` tokens from a random place, and the same shifted by one."""

    def __init__(self, file, block_size):
        self.tokens = np.memmap(file, dtype=np.uint16, mode="r")
        self.block_size = block_size

    def __len__(self):
        return len(self.tokens) // self.block_size

    def __getitem__(self, _):
        start = int(torch.randint(len(self.tokens) - self.block_size - 1, ()))
        window = self.tokens[start : start + self.block_size + 1].astype(np.int64)
        return torch.from_numpy(window[:-1]), torch.from_numpy(window[1:])


class TinyTransformer(nn.Module):
    def __init__(self, block_size, width=32):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.place = nn.Embedding(block_size, width)
        self.block = nn.TransformerEncoderLayer(
            width, 2, 64, dropout=0.1, batch_first=True, norm_first=True
        )
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(block_size))

    def forward(self, x, y):
        hidden = self.token(x) + self.place.weight[: x.shape[1]]
        logits = self.head(self.block(hidden, src_mask=self.mask, is_causal=True))
        return nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())


def endless(loader):
    while True:
        yield from loader


@torch.no_grad()
def estimate_loss(model, loader, num_batches):
    model.eval()
    losses = []
    for i, (x, y) in enumerate(loader):
        if i >= num_batches:
            break
        losses.append(model(x, y).item())
    model.train()
    return sum(losses) / len(losses)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--block-size", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--grad-accum", type=int, default=2)
    parser.add_argument("--max-iters", type=int, default=16)
    parser.add_argument("--eval-interval", type=int, default=8)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(1337)
    train_set = Blocks(args.data / "tokens" / "train.bin", args.block_size)
    val_set = Blocks(args.data / "tokens" / "val.bin", args.block_size)
    model = TinyTransformer(args.block_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    first = 0
    if args.resume:
        checkpoint = torch.load("ckpt.pt")
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        torch.set_rng_state(checkpoint["rng"])
        first = checkpoint["iteration"]

    sampler = RandomSampler(train_set, replacement=True, num_samples=100)
    train_loader = DataLoader(train_set, args.batch_size, sampler=sampler, num_workers=2)
    val_loader = DataLoader(val_set, args.batch_size, num_workers=2, persistent_workers=True)
    batches = endless(train_loader)
    for iteration in range(first, args.max_iters):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * (0.1 + 0.9 * math.cos(iteration / 40) ** 2)
        total = 0.0
        for _ in range(args.grad_accum):
            loss = model(*next(batches)) / args.grad_accum
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"iter {iteration}: loss {total:.8f}")
        if (iteration + 1) % args.eval_interval == 0:
            print(f"step {iteration + 1}: val loss {estimate_loss(model, val_loader, 4):.8f}")
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            state |= {"iteration": iteration + 1, "rng": torch.get_rng_state()}
            torch.save(state, "ckpt.pt")


if __name__ == "__main__":
    main()
