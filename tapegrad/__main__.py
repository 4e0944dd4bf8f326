"""`python -m tapegrad` is the command `tapegrad`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
