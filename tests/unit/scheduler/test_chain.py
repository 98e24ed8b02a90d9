"""How many chains a loader has."""

import pytest

from stoker.scheduler.tasks.chain import num_chains


@pytest.mark.parametrize(
    ("setting", "num_workers", "num_slots", "expected"),
    [
        ("script", 3, 8, 3), ("script", 8, 2, 8),
        ("auto", 3, 8, 8), ("auto", 8, 2, 8), ("auto", 1, 1, 1),
        ("5", 3, 8, 5), ("1", 3, 8, 1), ("12", 3, 8, 12),
    ],
)  # fmt: skip
def test_the_setting_decides_the_number_of_chains(setting, num_workers, num_slots, expected):
    assert num_chains(setting, num_workers, num_slots) == expected
