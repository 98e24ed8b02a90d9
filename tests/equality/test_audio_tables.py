"""Sounds whose libraries make tables anew at each call give torch's batches, and few tables are made."""

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from stoker.config import Settings
from stoker.fast import report as report_module
from tests.equality.sides import both

OFF = Settings(quiet=True, cache="off")
RATES = [8_000, 11_025, 22_050, 44_100, 48_000]


@pytest.fixture(autouse=True)
def told(monkeypatch):
    """What this test's workers tell."""
    found = report_module.Report()
    monkeypatch.setattr(report_module, "report", found)
    return found


def sound(i):
    return torch.randn(4_000, generator=torch.Generator().manual_seed(i))


def by_functional(i):
    functional = pytest.importorskip("torchaudio.functional")
    return functional.resample(sound(i), RATES[i % len(RATES)], 16_000, rolloff=0.9 + i % 2 / 100)[
        :1000
    ]


def by_transforms(i):
    transforms = pytest.importorskip("torchaudio.transforms")
    resample = transforms.Resample(
        RATES[i % len(RATES)], 16_000, resampling_method="sinc_interp_kaiser"
    )
    mel = transforms.MelSpectrogram(16_000, n_mels=64, norm=("slaney", None)[i % 2])
    return mel(resample(sound(i)))[:, :5]


def by_kaldi(i):
    kaldi = pytest.importorskip("torchaudio.compliance.kaldi")
    return kaldi.fbank(sound(i)[None], num_mel_bins=23)


def by_librosa(i):
    librosa = pytest.importorskip("librosa")
    mel = librosa.feature.melspectrogram(y=sound(i).numpy(), sr=16_000, n_mels=64)
    return torch.from_numpy(mel)


def changed_in_place(i):
    functional = pytest.importorskip("torchaudio.functional")
    bank = functional.melscale_fbanks(201, 0.0, 8000.0, 32, 16_000)
    return bank.mul_(i)


def of_other_types(i):
    functional = pytest.importorskip("torchaudio.functional")
    torch.set_default_dtype((torch.float32, torch.float64)[i % 2])
    try:
        return functional.melscale_fbanks(201, 0.0, 8000.0, 32, 16_000).double()
    finally:
        torch.set_default_dtype(torch.float32)


def without_gradients(i):
    functional = pytest.importorskip("torchaudio.functional")
    with torch.inference_mode(bool(i % 2)):
        bank = functional.melscale_fbanks(201, 0.0, 8000.0, 32, 16_000)
    return bank.clone(), bank.is_inference()


class Sounds(Dataset):
    def __init__(self, make):
        self.make = make

    def __len__(self):
        return 60

    def __getitem__(self, i):
        return self.make(i)


KERNEL = "torchaudio.functional.functional._get_sinc_resample_kernel"
BANK = "torchaudio.functional.functional.melscale_fbanks"
MAKES = {  # and whose tables are made once
    by_functional: {KERNEL},
    by_transforms: {KERNEL, BANK},
    by_kaldi: {"torchaudio.compliance.kaldi.get_mel_banks"},
    by_librosa: {"librosa.filters.mel"},
    changed_in_place: {BANK},
    of_other_types: {BANK},
    without_gradients: {BANK},
}


@pytest.mark.parametrize("make", MAKES, ids=lambda make: make.__name__)
def test_batches_are_torchs_and_tables_are_made_once(make, told):
    make(0)  # skips where the library is not installed

    def make_loader(num_workers):
        return DataLoader(Sounds(make), batch_size=6, num_workers=num_workers)

    both(make_loader, lambda loader: loader, settings=OFF)
    assert {place.place for place in told.places()} == MAKES[make]
    # Workers that are not forked import the library for their first samples, which are not counted.
    assert all(place.num_made >= 24 and not place.why for place in told.places())


def test_off_is_off(told):
    by_functional(0)

    def make_loader(num_workers):
        return DataLoader(Sounds(by_functional), batch_size=6, num_workers=num_workers)

    both(make_loader, lambda loader: loader, settings=OFF._replace(fast="off"))
    assert not told.places()
