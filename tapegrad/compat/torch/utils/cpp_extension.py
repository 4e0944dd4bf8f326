"""`torch.utils.cpp_extension`: C++ written for PyTorch cannot be built."""

from ...absent import absent, absent_class

_INSTEAD = "write the operation with tensors, NumPy or torch.library.custom_op"

CUDA_HOME = None
BuildExtension = absent_class("torch.utils.cpp_extension.BuildExtension", _INSTEAD)
CppExtension = absent("torch.utils.cpp_extension.CppExtension", _INSTEAD)
CUDAExtension = absent("torch.utils.cpp_extension.CUDAExtension", _INSTEAD)
load = absent("torch.utils.cpp_extension.load", _INSTEAD)
load_inline = absent("torch.utils.cpp_extension.load_inline", _INSTEAD)
