"""Everything here needs a CUDA device; without one it is skipped, and says so."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.equality.pinnable import end_torchs_workers

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if HERE in item.path.parents]
    for item in here:
        item.add_marker(pytest.mark.gpu)
        if not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no CUDA device here"))


@pytest.fixture(scope="session", autouse=True)
def what_cuda_opens_once_is_no_tests() -> None:
    """Its context and NCCL open devices, sockets and pipes with their first use in a process."""
    if torch.cuda.is_available():
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=60)
        group = dist.ProcessGroupNCCL(dist.HashStore(), 0, 1, options)
        group.allreduce([torch.ones(1, device="cuda")]).wait()
        torch.cuda.synchronize()
        group.shutdown()


@pytest.fixture(autouse=True)
def torchs_workers_end_with_their_test() -> Iterator[None]:
    yield
    end_torchs_workers()
