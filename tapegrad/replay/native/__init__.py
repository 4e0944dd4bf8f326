"""Code shared by targets that generate native code: LLVM text, loop elements, memory plans."""

from __future__ import annotations
