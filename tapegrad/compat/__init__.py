"""tapegrad in the place of PyTorch: `import torch` finds the facade of this folder.

install ─> finder ─> facade ─> torch/ (what PyTorch has and tapegrad's own modules do not)
               └──> paths    └> tapegrad's own modules
"""

from .install import install_as_torch, is_installed

__all__ = ["install_as_torch", "is_installed"]
