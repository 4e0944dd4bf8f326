"""What targets that make native code share: text of LLVM, elements of loops, plans of memory."""

from __future__ import annotations
