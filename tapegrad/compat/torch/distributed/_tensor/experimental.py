"""`torch.distributed._tensor.experimental`: plain tensors among distributed ones."""

from ....absent import absent

implicit_replication = absent(
    "torch.distributed.tensor.experimental.implicit_replication",
    "use distribute_tensor(x, mesh, [Replicate()])",
)
