"""The parts of a trial that can be told without one: endless samplers, starts of epochs, a script without a loader."""

from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from stoker.cli.examine.doctor import _say_if_none_yet
from stoker.doctor.plan import PID
from stoker.doctor.trial import Endless, _start_s


def test_an_endless_sampler_goes_on_until_it_is_told_how_many_are_left():
    endless = Endless([1, 2, 3])
    drawn = iter(endless)
    assert [next(drawn) for _ in range(7)] == [1, 2, 3, 1, 2, 3, 1]
    endless.num_left = 2
    assert list(drawn) == [2, 3]
    assert list(endless) == []  # until it is told again


class Counted(list):
    def __init__(self, *args):
        super().__init__(*args)
        self.num_made = 0

    def __getitem__(self, i):
        self.num_made += 1
        return super().__getitem__(i)


def test_the_start_is_measured_of_an_epoch_after_one_of_so_many_batches():
    samples = Counted(range(6))
    loader = DataLoader(samples, batch_size=2)
    loader.__dict__["batch_sampler"] = Endless(BatchSampler(SequentialSampler(samples), 2, False))
    assert 0 < _start_s(loader, 5) < 1
    assert samples.num_made == 2 * (5 + 1)


def test_it_says_that_no_loader_was_iterated(tmp_path, capsys):
    _say_if_none_yet(tmp_path)
    assert "stoker: no loader has been iterated in 60 s; " in capsys.readouterr().err
    (tmp_path / f"{PID}12").touch()
    _say_if_none_yet(tmp_path)
    assert capsys.readouterr().err == ""
