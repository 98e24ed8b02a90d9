"""The data that the training scripts of tests/scripts read: small, and always the same files.

Promise: every format is written as its genre has it (JPEG, XML, JSON, WAV, MP4, NIfTI, memory maps, CSV,
text);
photographs are cut from those that the scikit-image and scikit-learn wheels ship; nothing is
downloaded. By hand, from the repository's root: python -m tests.equality.script_data FOLDER
"""

import itertools
import json
import random
import sys
import wave
from pathlib import Path
from xml.etree import ElementTree

import av
import nibabel
import numpy as np
from benchmarks.wheel_photos import SOURCES, source_path
from PIL import Image

LABELS = ("astronaut", "chelsea", "china", "coffee", "flower", "rocket")
SAMPLES_PER_S = 8000
PITCHES_HZ = {letter: 350 + 90 * k for k, letter in enumerate("abcdefghij")}
SYLLABLES = ("ka", "lo", "mi", "ne", "pu", "ra", "so", "ti", "vu", "ze")


def make_all(folder: Path) -> None:
    """Everything, in about a second."""
    draw = random.Random(0)
    photos = {label: small_photo(label) for label in LABELS}
    write_photos(folder / "photos", photos, draw)
    write_thumbnails(folder / "thumbnails.npz", photos, draw)
    write_voc(folder / "voc", photos, draw)
    write_coco(folder / "coco", photos, draw)
    write_videos(folder / "videos", photos, draw)
    write_speech(folder / "speech", draw)
    write_text(folder, draw)
    write_tables(folder)
    write_clouds(folder / "clouds")
    write_volumes(folder / "volumes")
    write_molecules(folder / "molecules.json", draw)


def small_photo(label: str) -> Image.Image:
    photo = Image.open(source_path(*SOURCES[label])).convert("RGB")
    photo.thumbnail((320, 320))
    return photo


def cut(photo: Image.Image, width: int, height: int, draw: random.Random) -> Image.Image:
    """A part of a photograph, at half to the whole of its size, scaled to width x height."""
    scale = draw.uniform(0.5, 1.0) * min(photo.width / width, photo.height / height)
    part_width, part_height = int(width * scale), int(height * scale)
    left = draw.randint(0, photo.width - part_width)
    top = draw.randint(0, photo.height - part_height)
    box = (left, top, left + part_width, top + part_height)
    return photo.resize((width, height), Image.Resampling.BILINEAR, box)


def write_photos(folder: Path, photos: dict[str, Image.Image], draw: random.Random) -> None:
    for part, num_each in (("train", 10), ("val", 4)):
        for label, photo in photos.items():
            (folder / part / label).mkdir(parents=True)
            for k in range(num_each):
                cut(photo, 120, 90, draw).save(folder / part / label / f"{k:03d}.jpg", quality=90)


def write_thumbnails(file: Path, photos: dict[str, Image.Image], draw: random.Random) -> None:
    labels = [k % len(LABELS) for k in range(240)]
    images = [np.asarray(cut(photos[LABELS[label]], 32, 32, draw)) for label in labels]
    np.savez(file, images=np.stack(images), labels=np.array(labels))


def draw_box(width: int, height: int, draw: random.Random) -> tuple[int, int, int, int]:
    left, top = draw.randint(0, width - 20), draw.randint(0, height - 20)
    return left, top, draw.randint(left + 10, width), draw.randint(top + 10, height)


def write_voc(folder: Path, photos: dict[str, Image.Image], draw: random.Random) -> None:
    for name in ("JPEGImages", "Annotations", "ImageSets"):
        (folder / name).mkdir(parents=True)
    names = [f"{k:06d}" for k in range(30)]
    for name in names:
        cut(photos[draw.choice(LABELS)], 96, 72, draw).save(folder / "JPEGImages" / f"{name}.jpg")
        root = ElementTree.Element("annotation")
        for _ in range(draw.randint(1, 4)):
            thing = ElementTree.SubElement(root, "object")
            ElementTree.SubElement(thing, "name").text = draw.choice(("cat", "cup", "rocket"))
            ElementTree.SubElement(thing, "difficult").text = str(int(draw.random() < 0.1))
            box = ElementTree.SubElement(thing, "bndbox")
            for side, value in zip(
                ("xmin", "ymin", "xmax", "ymax"), draw_box(96, 72, draw), strict=True
            ):
                ElementTree.SubElement(box, side).text = str(value)
        ElementTree.ElementTree(root).write(folder / "Annotations" / f"{name}.xml")
    (folder / "ImageSets" / "train.txt").write_text("\n".join(names[:24]))
    (folder / "ImageSets" / "val.txt").write_text("\n".join(names[24:]))


def write_coco(folder: Path, photos: dict[str, Image.Image], draw: random.Random) -> None:
    """Images of many sizes, some without a box, and one whose file was cut off."""
    (folder / "images").mkdir(parents=True)
    images, annotations = [], []
    for k in range(28):
        width, height = draw.randint(48, 112), draw.randint(48, 112)
        file = folder / "images" / f"{k:04d}.jpg"
        cut(photos[draw.choice(LABELS)], width, height, draw).save(file)
        images.append({"id": k, "file_name": file.name, "width": width, "height": height})
        for _ in range(draw.randint(0, 4)):
            x, y, right, bottom = draw_box(width, height, draw)
            box = [x, y, right - x, bottom - y]
            annotations.append({"image_id": k, "bbox": box, "category_id": draw.randint(1, 3)})
    damaged = folder / "images" / "0011.jpg"
    damaged.write_bytes(damaged.read_bytes()[:400])
    (folder / "instances.json").write_text(
        json.dumps({"images": images, "annotations": annotations})
    )


def write_videos(folder: Path, photos: dict[str, Image.Image], draw: random.Random) -> None:
    """Frames of a window that wanders over a photograph: right, left, down or up."""
    folder.mkdir()
    for k in range(14):
        photo = np.asarray(photos[LABELS[k % len(LABELS)]].resize((140, 120)))
        num_frames, way = draw.randint(18, 36), k % 4
        steps = range(num_frames) if way % 2 == 0 else range(num_frames - 1, -1, -1)
        frames = [
            photo[10 : 74, s : s + 80] if way < 2 else photo[s : s + 64, 20:100] for s in steps
        ]  # fmt: skip
        write_mp4(folder / f"{k:03d}-way{way}.mp4", frames)


def write_mp4(file: Path, frames: list[np.ndarray]) -> None:
    with av.open(str(file), "w") as container:
        stream = container.add_stream("mpeg4", rate=24)
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt, stream.bit_rate, stream.thread_count = "yuv420p", 2_000_000, 1
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame))))
        container.mux(stream.encode())


def write_speech(folder: Path, draw: random.Random) -> None:
    """Words spoken as whistles, one pitch a letter."""
    folder.mkdir()
    noise = np.random.default_rng(1)
    lines = []
    for k in range(36):
        word = "".join(draw.choices(list(PITCHES_HZ), k=draw.randint(2, 6)))
        tones = [whistle(PITCHES_HZ[letter], draw.uniform(0.05, 0.09)) for letter in word]
        sound = np.concatenate(tones)
        sound = sound + 0.02 * noise.standard_normal(len(sound))
        with wave.open(str(folder / f"{k:03d}.wav"), "wb") as file:
            file.setparams((1, 2, SAMPLES_PER_S, 0, "NONE", "not compressed"))
            file.writeframes((sound * 2**14).astype("<i2").tobytes())
        lines.append(f"{k:03d}.wav\t{word}")
    (folder / "transcripts.tsv").write_text("\n".join(lines) + "\n")


def whistle(pitch_hz: float, length_s: float) -> np.ndarray:
    at_s = np.arange(int(length_s * SAMPLES_PER_S)) / SAMPLES_PER_S
    return np.sin(2 * np.pi * pitch_hz * at_s) * np.hanning(len(at_s))


def write_text(folder: Path, draw: random.Random) -> None:
    """Token memory maps, shards of lines, and sentences of many lengths with a label."""
    words = ["".join(pair) for pair in itertools.product(SYLLABLES, repeat=2)]
    (folder / "tokens").mkdir()
    for name, num_tokens in (("train", 20_000), ("val", 3_000)):
        tokens = np.cumsum(np.random.default_rng(num_tokens).integers(0, 4, num_tokens)) % 64
        tokens.astype(np.uint16).tofile(folder / "tokens" / f"{name}.bin")
    (folder / "shards").mkdir()
    for k in range(5):
        lines = [" ".join(draw.choices(words, k=draw.randint(3, 20))) for _ in range(40)]
        (folder / "shards" / f"{k:05d}.txt").write_text("\n".join(lines))
    with (folder / "reviews.jsonl").open("w") as file:
        for _ in range(180):
            text = " ".join(draw.choices(words, k=draw.randint(2, 24)))
            file.write(json.dumps({"text": text, "stars": text.count("ka") % 3}) + "\n")


def write_tables(folder: Path) -> None:
    noise = np.random.default_rng(2)
    rows = noise.standard_normal((1500, 10)).astype(np.float32)
    prices = rows @ noise.standard_normal(10) + 0.1 * noise.standard_normal(len(rows))
    np.savetxt(folder / "houses.csv", np.column_stack([rows, prices]), "%.5f", delimiter=",")
    is_fraud = rows[:, 0] + rows[:, 1] > 2.3
    np.savetxt(folder / "payments.csv", np.column_stack([rows, is_fraud]), "%.5f", delimiter=",")
    hours = np.arange(900)
    load = 50 + 20 * np.sin(hours * 2 * np.pi / 24) + 3 * noise.standard_normal(len(hours))
    warmth = 12 + 6 * np.sin(hours * 2 * np.pi / 240) + noise.standard_normal(len(hours))
    np.savetxt(
        folder / "load.csv", np.column_stack([hours, load, warmth]), "%.3f", delimiter=",",
        header="hour,load,warmth", comments="",
    )  # fmt: skip


def write_clouds(folder: Path) -> None:
    noise = np.random.default_rng(3)
    for kind in ("ball", "box", "pole"):
        (folder / kind).mkdir(parents=True)
        for k in range(12):
            points = noise.standard_normal((int(noise.integers(200, 400)), 3))
            if kind == "ball":
                points /= np.linalg.norm(points, axis=1, keepdims=True)
            else:
                points = np.clip(points, -1, 1) * ((1, 1, 1) if kind == "box" else (0.2, 0.2, 2))
            np.save(folder / kind / f"{k:02d}.npy", points.astype(np.float32))


def write_volumes(folder: Path) -> None:
    """Scans as 16 bit integers with a bright ball somewhere, and where that ball is."""
    folder.mkdir()
    noise = np.random.default_rng(4)
    for k in range(8):
        shape = noise.integers(36, 48, 3)
        centre = shape * noise.uniform(0.35, 0.65, 3)
        axes = np.ogrid[tuple(slice(length) for length in shape)]
        distance = sum((axis - c) ** 2 for axis, c in zip(axes, centre, strict=True)) ** 0.5
        label = distance < noise.uniform(7, 12)
        scan = 300 * label + 60 * noise.standard_normal(shape)
        for kind, values in (("scan", scan.astype(np.int16)), ("label", label.astype(np.uint8))):
            image = nibabel.Nifti1Image(values, affine=np.diag([1.5, 1.5, 2.0, 1.0]))  # mm
            nibabel.save(image, folder / f"{k:02d}_{kind}.nii.gz")


def write_molecules(file: Path, draw: random.Random) -> None:
    molecules = []
    for _ in range(120):
        atoms = [draw.randrange(5) for _ in range(draw.randint(3, 14))]
        bonds = [[k, draw.randrange(k)] for k in range(1, len(atoms))]
        molecules.append({"atoms": atoms, "bonds": bonds, "energy": sum(atoms) / len(atoms)})
    file.write_text(json.dumps(molecules))


if __name__ == "__main__":
    make_all(Path(sys.argv[1]))
