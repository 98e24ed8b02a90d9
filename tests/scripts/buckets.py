"""Classify reviews in batches of like length; the batches come in a new order each epoch.

usage: python buckets.py --data FOLDER
"""

import argparse
import json
import random
from collections import Counter
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Reviews(Dataset):
    def __init__(self, file, vocabulary=None, drop=0.0):
        with file.open() as lines:
            entries = [json.loads(line) for line in lines]
        self.texts = [entry["text"].split() for entry in entries]
        self.stars = [entry["stars"] for entry in entries]
        counts = Counter(word for text in self.texts for word in text)
        words = sorted(counts, key=lambda word: (-counts[word], word))
        self.vocabulary = vocabulary or {"<pad>": 0} | {w: k + 1 for k, w in enumerate(words)}
        self.drop = drop

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        words = self.texts[index]
        kept = [word for word in words if random.random() >= self.drop] or words[:1]
        return [self.vocabulary[word] for word in kept], self.stars[index]


class BucketBatchSampler:
    """Batches out of buckets of like length: buckets are shuffled, and then the batches."""

    def __init__(self, lengths, batch_size, bucket_width=4, shuffle=True, seed=0):
        self.lengths, self.batch_size = lengths, batch_size
        self.bucket_width, self.shuffle = bucket_width, shuffle
        self.seed, self.epoch = seed, 0

    def batches(self):
        draw = random.Random(self.seed + self.epoch)
        buckets = {}
        for index, length in enumerate(self.lengths):
            buckets.setdefault(length // self.bucket_width, []).append(index)
        batches = []
        for _, bucket in sorted(buckets.items()):
            if self.shuffle:
                draw.shuffle(bucket)
            batches += [
                bucket[k : k + self.batch_size] for k in range(0, len(bucket), self.batch_size)
            ]
        if self.shuffle:
            draw.shuffle(batches)
        return batches

    def __iter__(self):
        yield from self.batches()
        self.epoch += 1

    def __len__(self):
        return len(self.batches())


def collate(batch):
    """(tokens (B, longest), lengths (B,)), stars (B,), and the share that is padding."""
    texts, stars = zip(*batch, strict=True)
    lengths = [len(text) for text in texts]
    tokens = torch.zeros(len(texts), max(lengths), dtype=torch.long)
    for row, text in zip(tokens, texts, strict=True):
        row[: len(text)] = torch.tensor(text)
    padding = 1 - sum(lengths) / tokens.numel()
    return (tokens, torch.tensor(lengths)), torch.tensor(stars), padding


class BagOfWords(nn.Module):
    def __init__(self, num_words, width=16):
        super().__init__()
        self.embed = nn.Embedding(num_words, width, padding_idx=0)
        self.head = nn.Linear(width, 3)

    def forward(self, tokens, lengths):
        return self.head(self.embed(tokens).sum(1) / lengths[:, None])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    random.seed(15)
    torch.manual_seed(15)

    dataset = Reviews(args.data / "reviews.jsonl", drop=0.1)
    lengths = [len(text) for text in dataset.texts]
    sampler = BucketBatchSampler(lengths, batch_size=16, seed=15)
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate, num_workers=2)
    model = BagOfWords(len(dataset.vocabulary))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for epoch in range(args.epochs):
        for (tokens, num_words), stars, padding in loader:
            loss = nn.functional.cross_entropy(model(tokens, num_words), stars)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            shape = "x".join(map(str, tokens.shape))
            print(f"epoch {epoch} {shape} padding {padding:.4f} loss {loss.item():.8f}")
    torch.save({"model": model.state_dict(), "vocabulary": dataset.vocabulary}, "reviews.pt")


if __name__ == "__main__":
    main()
