"""tapegrad as PyTorch: makes `import torch` import the facade modules of this folder.

install ─> finder ─> facade ─> torch/ (names of PyTorch that tapegrad's own modules lack)
               └──> paths    └> tapegrad's own modules
"""

from .install import install_as_torch, is_installed

__all__ = ["install_as_torch", "is_installed"]
