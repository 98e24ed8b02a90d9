"""What launchers say of ranks."""

import pytest

from stoker.reports.ranks import Ranks, local_world_size, rank_of


@pytest.mark.parametrize(
    ("environ", "size"),
    [
        ({}, 1),
        ({"LOCAL_WORLD_SIZE": "4", "SLURM_NTASKS_PER_NODE": "8"}, 4),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "3"}, 3),
        ({"MPI_LOCALNRANKS": "2"}, 2),
        ({"SLURM_NTASKS_PER_NODE": "8"}, 8),
        ({"LOCAL_WORLD_SIZE": "0"}, 1),
        ({"LOCAL_WORLD_SIZE": "many"}, 1),
    ],
    ids=str,
)
def test_ranks_on_this_host_are_what_the_launcher_says(environ, size):
    assert local_world_size(environ) == size


@pytest.mark.parametrize(
    ("environ", "rank"), [({"RANK": "3"}, 3), ({}, None), ({"RANK": "x"}, None)]
)
def test_the_rank_is_what_the_launcher_says(environ, rank):
    assert rank_of(environ) == rank


def test_without_a_process_group_nobody_is_missing():
    ranks = Ranks()
    ranks.look(at_end=True)
    assert ranks.without_stoker == []
