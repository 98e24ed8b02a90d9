"""Runs the `stoker` command as `python -m stoker`."""

import sys

from stoker.cli.main import main

sys.exit(main())
