"""Iterates a loader, closes the pipe that it was given, and waits to be killed."""

import os
import signal
import sys

import torch
from torch.utils.data import DataLoader

list(DataLoader(torch.arange(8), 4))
os.close(int(sys.argv[1]))
os.write(int(os.environ["TELL_FD"]), b"closed\n")
signal.pause()
