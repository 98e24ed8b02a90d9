"""How the keeper names the end of a process."""

import signal

import pytest

from stoker.reports.keeper import ended


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (None, "a signal or os._exit"),
        (0, "exit"),
        (3 << 8, "exit"),
        (int(signal.SIGKILL), "SIGKILL"),
        (int(signal.SIGSEGV) | 0x80, "SIGSEGV"),
        (int(signal.SIGRTMIN) + 2, "SIGRTMIN+2"),
    ],
)
def test_a_wait_status_is_told_in_words(status, text):
    assert ended(status) == text
