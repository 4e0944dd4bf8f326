"""`torch.distributed._tensor.experimental`: mixing plain and distributed tensors; raises."""

from ....absent import absent

implicit_replication = absent(
    "torch.distributed.tensor.experimental.implicit_replication",
    "use distribute_tensor(x, mesh, [Replicate()])",
)
