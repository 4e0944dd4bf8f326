"""`torch.nn`: names that `tapegrad.nn` lacks."""

from __future__ import annotations

from typing import Any

from ....core.device import as_device
from ....nn.module import Module


class DataParallel(Module):
    """Calls a module on one device, as PyTorch's class does with at most one GPU.

    Batches are not split over several GPUs: use DistributedDataParallel for that.
    """

    def __init__(
        self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.device_ids = [
            d if isinstance(d, int) else as_device(d).index for d in device_ids or ()
        ]
        if len(self.device_ids) > 1:
            raise NotImplementedError(
                "torch.nn.DataParallel over several GPUs does not exist in tapegrad; "
                "use torch.nn.parallel.DistributedDataParallel"
            )
        self.dim = dim
        self.output_device = output_device
        self.module = module

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)
