"""How a table's columns are aligned."""

from stoker.tables import aligned


def test_columns_are_two_spaces_apart_and_the_chosen_ones_end_at_one_place():
    rows = [("loader", "batches", "verdict"), ("train.py:12", "1,024", "equal"), ("x", "7", "")]
    assert aligned(rows, right=[1], indent=2) == (
        "  loader       batches  verdict\n  train.py:12    1,024  equal\n  x                  7\n"
    )
