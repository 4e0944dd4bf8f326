"""PyTorch's name for tapegrad: importing this package installs the facade in its own place."""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

if find_spec("tapegrad") is None:  # the library is not where this Python looks
    sys.path.append(str(Path(__file__).parents[4]))
import_module("tapegrad.compat.install").activate()
