"""A package named `torch`: when imported, it replaces itself by the facade over tapegrad."""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

if find_spec("tapegrad") is None:  # tapegrad is not on this Python's path
    sys.path.append(str(Path(__file__).parents[4]))
import_module("tapegrad.compat.install").activate()
