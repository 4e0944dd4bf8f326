"""einx: einstein notation for operations, layers and gradients."""

import einx
import torch
from common import data, finish, record

x = data(4, 6, 5).requires_grad_()
w = data(5, 3, seed=1)
for name, value in (
    ("id", einx.id("a (b c) d -> c a b d", x, b=2)),
    ("sum", einx.sum("a [b] c", x)),
    ("mean", einx.mean("a [...] c", x)),
    ("keep", einx.max("a b [c]", x)),
    ("dot", einx.dot("a b [c], [c] d -> a b d", x, w)),
    ("add", einx.add("a b c, c", x, data(5))),
    ("multiply", einx.multiply("a b c, a -> a b c", x, data(4))),
    ("softmax", einx.softmax("a b [c]", x)),
    ("flip", einx.flip("a [b] c", x)),
    ("where", einx.where("a, a b c, c -> a b c", data(4) > 0, x, data(5))),
    ("logsumexp", einx.logsumexp("a [b c]", x)),
    ("get_at", einx.get_at("a [b] c, a d -> a d c", x, data(4, 2, high=6))),
):
    record(name, value)
    record(f"{name}.grad", torch.autograd.grad(value.square().sum(), x))
finish()
