"""`python -m stoker` is `stoker`."""

import sys

from stoker.cli.main import main

sys.exit(main())
