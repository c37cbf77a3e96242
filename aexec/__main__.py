"""`python -m aexec` is the command `aexec`."""

import sys

from aexec.cli import main

sys.exit(main())
