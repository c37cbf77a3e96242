"""`python -m aexec` is the command `aexec`."""

import sys

from aexec.cli import main

if __name__ == "__main__":
    sys.exit(main())
