"""Train a language model on shards of text: streamed, shuffled in a buffer, packed.

usage: python lm_shards.py --data FOLDER
"""

import argparse
import itertools
import random
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import ChainDataset, DataLoader, IterableDataset, get_worker_info

END = 0  # between documents; letters are 1 to 26, the space is 27


def tokenize(line):
    return [27 if letter == " " else ord(letter) - ord("a") + 1 for letter in line] + [END]


class Shards(IterableDataset):
    """Packed pieces of `length` + 1 tokens; each worker reads its own share of the shards."""

    def __init__(self, files, length, buffer_size=0, seed=0):
        self.files, self.length = files, length
        self.buffer_size, self.seed = buffer_size, seed
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def my_files(self):
        worker = get_worker_info()
        files = list(self.files)
        if self.buffer_size:
            random.Random(self.seed + self.epoch).shuffle(files)
        return files if worker is None else files[worker.id :: worker.num_workers]

    def documents(self):
        for file in self.my_files():
            with file.open() as lines:
                for line in lines:
                    yield tokenize(line.strip())

    def shuffled(self, documents):
        """Each document leaves the buffer at a random moment."""
        buffer = list(itertools.islice(documents, self.buffer_size))
        for document in documents:
            place = random.randrange(len(buffer))
            yield buffer[place]
            buffer[place] = document
        random.shuffle(buffer)
        yield from buffer

    def __iter__(self):
        documents = self.documents()
        if self.buffer_size:
            documents = self.shuffled(documents)
        rest = []
        for document in documents:
            rest += document
            while len(rest) > self.length:
                yield torch.tensor(rest[: self.length + 1])
                rest = rest[self.length :]


class Gru(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(28, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, 28)

    def forward(self, tokens):
        logits = self.head(self.gru(self.embed(tokens[:, :-1]))[0])
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--length", type=int, default=48)
    parser.add_argument("--max-steps", type=int, default=8, help="of an epoch")
    args = parser.parse_args()
    random.seed(19)
    torch.manual_seed(19)

    files = sorted((args.data / "shards").glob("*.txt"))
    train_set = Shards(files[:3], args.length, buffer_size=20, seed=19)
    val_set = ChainDataset([Shards([file], args.length) for file in files[3:]])
    train_loader = DataLoader(
        train_set, batch_size=16, num_workers=2, worker_init_fn=lambda k: random.seed(19 + k)
    )
    val_loader = DataLoader(val_set, batch_size=32, num_workers=1)
    model = Gru()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for epoch in range(args.epochs):
        train_set.set_epoch(epoch)
        for step, tokens in enumerate(train_loader):
            loss = model(tokens)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"epoch {epoch} step {step} {tuple(tokens.shape)} loss {loss.item():.8f}")
            if step + 1 == args.max_steps:
                break
        with torch.no_grad():
            losses = [model(tokens).item() for tokens in val_loader]
        print(f"epoch {epoch} val {[round(loss, 8) for loss in losses]}")
    torch.save(model.state_dict(), "gru.pt")


if __name__ == "__main__":
    main()
