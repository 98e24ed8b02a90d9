"""HF datasets on local files."""

import json
from pathlib import Path

import datasets
import material
import torch
from torch.utils.data import DataLoader

datasets.disable_progress_bars()


def make_files(folder: Path) -> list[str]:
    photos = sorted(material.make_photos(folder / "photos", 160).rglob("*.jpg"))
    features = datasets.Features({"photo": datasets.Image(), "label": datasets.Value("int64")})
    files = []
    for number in range(4):
        part = photos[number::4]
        rows = {
            "photo": [{"bytes": photo.read_bytes(), "path": None} for photo in part],
            "label": [int(photo.parent.name[-1]) for photo in part],
        }
        files.append(str(folder / f"part{number}.parquet"))
        datasets.Dataset.from_dict(rows, features=features).to_parquet(files[-1])
    return files


def make_lines(folder: Path) -> list[str]:
    """Four files of JSON lines."""
    folder.mkdir()
    files = [folder / f"part{number}.jsonl" for number in range(4)]
    for number, file in enumerate(files):
        rows = [{"number": 100 * number + k, "text": "word " * (k % 7)} for k in range(40)]
        file.write_text("\n".join(json.dumps(row) for row in rows))
    return [str(file) for file in files]


def pairs(samples: list[dict]) -> tuple[torch.Tensor, torch.Tensor]:
    photos = torch.stack([sample["photo"] for sample in samples]).float() / 255
    return photos + 0.1 * torch.randn_like(photos), torch.stack([one["label"] for one in samples])


def main() -> None:
    material.begin()
    model = material.Tiny()
    table = datasets.load_dataset("parquet", data_files=make_files(Path("tables")), split="train")
    table = table.with_format("torch")
    settings = {"batch_size": 16, "num_workers": 2}
    material.train(DataLoader(table, shuffle=True, collate_fn=pairs, **settings), model)
    # Not load_dataset(streaming=True): forked readers of parquet hang at exit until torch's 5 s.
    stream = table.to_iterable_dataset(num_shards=4).shuffle(seed=7, buffer_size=50)
    for epoch in range(2):
        stream.set_epoch(epoch)
        material.train(DataLoader(stream, collate_fn=pairs, **settings), model, 1)
    lines = datasets.load_dataset(
        "json", data_files=make_lines(Path("lines")), split="train", streaming=True
    )
    for batch in DataLoader(lines.shuffle(seed=3, buffer_size=20), **settings):
        material.tell("lines", batch["number"].tolist(), batch["text"][0])
    table.set_transform(lambda rows: {"label": rows["label"]})
    for number, batch in enumerate(DataLoader(table, **settings)):
        material.tell("labels", number, batch["label"].sum())
    material.end()


if __name__ == "__main__":
    main()
