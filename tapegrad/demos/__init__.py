"""The demonstrations behind `tapegrad demo`: each trains something real in less than a minute.

A demo is a module with `DESCRIPTION`, `STEPS` and `run(options, report)`, which returns its
figures. It loads its data with `data.py`, prints through `report` and saves one picture.
"""

from __future__ import annotations

#: the demos; each is the module of that name
NAMES = ("digits", "gpt", "vae", "pinn")
