"""einops: operations, layers and their gradients."""

import torch
from common import data, finish, prepared, record, record_step
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import EinMix, Rearrange, Reduce
from torch import nn

x = data(2, 3, 8, 8).requires_grad_()
y = rearrange(x, "b c (h p) (w q) -> b (h w) (c p q)", p=4, q=2)
record("rearrange", y)
record(
    "reduce", [reduce(x, "b c h w -> b c", how) for how in ("mean", "max", "min", "sum", "prod")]
)
record("repeat", repeat(x, "b c h w -> b c (h 2) w k", k=3))
record("einsum", einsum(x, data(3, 5), "b c h w, c d -> b d h w"))
packed, shapes = pack([x, data(2, 3, 5)], "b c *")
record("packed", packed)
record("unpacked", unpack(packed, shapes, "b c *"))
(y.pow(3).sum() + repeat(x, "b c h w -> b c h w 2").sin().sum()).backward()
record("gradient", x.grad)
model = prepared(
    nn.Sequential(
        Rearrange("b c (h p) (w q) -> b h w (c p q)", p=2, q=2),
        nn.Linear(12, 8),
        EinMix("b h w c -> b h w d", weight_shape="c d", bias_shape="d", c=8, d=6),
        Reduce("b h w c -> b c", "mean"),
    )
)
record_step("layers", model, model(x))
assert isinstance(torch.jit.script(model), nn.Module)
finish()
