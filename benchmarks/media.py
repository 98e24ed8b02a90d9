"""Sounds, volumes, scans and videos for benchmarks: always the same files, made once.

Promise: real WAV, NIfTI, DICOM and MP4 files, in the sizes that training has; nothing is downloaded.
"""

import wave
from pathlib import Path

import numpy as np
from made_data import made_once

RATE, SECONDS = 44_100, 5


def sounds(num: int = 512) -> Path:
    return made_once(f"sounds-5s-44k-{num}", lambda folder: _write_sounds(folder, num))


def _write_sounds(folder: Path, num: int) -> None:
    time_s = np.arange(RATE * SECONDS) / RATE
    for number in range(num):
        draw = np.random.default_rng(number)
        sound = draw.normal(0, 0.02, len(time_s))
        for _ in range(5):
            sound += np.sin(2 * np.pi * draw.uniform(80, 4000) * time_s) * draw.uniform(0, 0.2)
        with wave.open(str(folder / f"{number:04}.wav"), "wb") as file:
            file.setparams((1, 2, RATE, 0, "NONE", ""))
            file.writeframes((sound.clip(-1, 1) * 32767).astype(np.int16).tobytes())


def blobs(shape: tuple[int, ...], draw: np.random.Generator) -> np.ndarray:
    """Something like a scan: smooth blobs and noise, int16."""
    axes = np.meshgrid(*(np.linspace(-1, 1, n, dtype=np.float32) for n in shape), indexing="ij")
    volume = draw.normal(0, 20, shape).astype(np.float32)
    for _ in range(4):
        centre, width = draw.uniform(-0.6, 0.6, len(shape)), draw.uniform(0.1, 0.5)
        far = sum((axis - c) ** 2 for axis, c in zip(axes, centre, strict=True))
        volume += 900 * np.exp(-far / width**2)
    return volume.astype(np.int16)


def volumes() -> Path:
    return made_once("volumes-256x256x128-16", _write_volumes)


def _write_volumes(folder: Path) -> None:
    import nibabel

    for number in range(16):
        volume = blobs((256, 256, 128), np.random.default_rng(number))
        affine = np.diag([-0.9, -0.9, 1.2, 1.0])
        nibabel.save(nibabel.Nifti1Image(volume, affine), folder / f"{number:02}.nii.gz")


def scans() -> Path:
    return made_once("scans-48x256x256-32", _write_scans)


def _write_scans(folder: Path) -> None:
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

    for number in range(32):
        volume = blobs((48, 256, 256), np.random.default_rng(number))
        series = folder / f"{number:02}"
        series.mkdir()
        for k, image in enumerate(volume):
            meta = FileMetaDataset()
            meta.MediaStorageSOPClassUID = CTImageStorage
            meta.MediaStorageSOPInstanceUID = generate_uid(entropy_srcs=[str(number), str(k)])
            meta.TransferSyntaxUID = ExplicitVRLittleEndian
            made = FileDataset("", {}, file_meta=meta, preamble=bytes(128))
            made.SOPClassUID, made.SOPInstanceUID = CTImageStorage, meta.MediaStorageSOPInstanceUID
            made.Modality, made.InstanceNumber = "CT", k + 1
            made.Rows, made.Columns = image.shape
            made.BitsAllocated = made.BitsStored = 16
            made.HighBit, made.PixelRepresentation, made.SamplesPerPixel = 15, 1, 1
            made.PhotometricInterpretation = "MONOCHROME2"
            made.RescaleSlope, made.RescaleIntercept = 1, -1024
            made.PixelData = image.tobytes()
            made.save_as(series / f"{k:03}.dcm", enforce_file_format=True)


def tiles() -> Path:
    return made_once("tiles-4x512x512-128", _write_tiles)


def _write_tiles(folder: Path) -> None:
    import rasterio
    from rasterio.transform import from_origin

    for number in range(128):
        tile = blobs((4, 512, 512), np.random.default_rng(number)).clip(0, 10_000).astype(np.uint16)
        where = from_origin(500_000 + 5120 * number, 5_000_000, 10, 10)
        with rasterio.open(
            folder / f"{number:03}.tif", "w", driver="GTiff", width=512, height=512, count=4,
            dtype="uint16", crs="EPSG:32632", transform=where, compress="deflate", predictor=2,
            tiled=True, blockxsize=256, blockysize=256,
        ) as file:  # fmt: skip
            file.write(tile)


def videos(num: int = 12, seconds: int = 30) -> Path:
    name = f"videos-{seconds}s-854x480-{num}"
    return made_once(name, lambda folder: _write_videos(folder, num, seconds))


def _write_videos(folder: Path, num: int, seconds: int) -> None:
    import av

    for number in range(num):
        draw = np.random.default_rng(number)
        still = blobs((480 + 64, 854 + 64), draw)[..., None] // (3, 5, 7) + 60
        still = still.clip(0, 255).astype(np.uint8)
        with av.open(str(folder / f"{number:02}.mp4"), "w") as container:
            stream = container.add_stream("h264", rate=24)
            stream.width, stream.height, stream.pix_fmt = 854, 480, "yuv420p"
            for k in range(24 * seconds):
                y, x = int(32 + 30 * np.sin(k / 40)), int(32 + 30 * np.cos(k / 50))
                frame = av.VideoFrame.from_ndarray(
                    np.ascontiguousarray(still[y : y + 480, x : x + 854]), format="rgb24"
                )
                container.mux(stream.encode(frame))
            container.mux(stream.encode())
