"""What is remembered of loaders without workers."""

from torch.utils.data import DataLoader

from stoker.intercept import in_process


def test_a_loader_that_is_gone_is_forgotten_and_its_id_may_come_again():
    before = len(in_process._loaders)
    for _ in range(3):
        loader = DataLoader([1, 2])
        assert in_process.why(loader) == []
        in_process._known(loader).why_here = "a reason"
        assert in_process.why(loader) == ["a reason"]
        assert len(in_process._loaders) == before + 1
        del loader
        assert len(in_process._loaders) == before
