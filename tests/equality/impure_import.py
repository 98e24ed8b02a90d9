"""A library that tells the environment where its files lie when it is first imported, as rasterio does.

Imported by samples alone: never by the process that starts their workers.
"""

import os

os.environ.setdefault("A_LIBRARY_FOR_TESTS", __file__)


def told(number):
    return number + len(os.environ["A_LIBRARY_FOR_TESTS"]) * 0
