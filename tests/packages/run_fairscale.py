"""fairscale: checkpointing, adaptive steps, gradient scaling and pipes on one process."""

import torch
from common import data, finish, prepared, record, record_step
from fairscale.nn.checkpoint import checkpoint_wrapper
from fairscale.nn.misc import FlattenParamsWrapper
from fairscale.nn.wrap import auto_wrap, default_auto_wrap_policy, enable_wrap, wrap  # noqa: F401
from fairscale.optim import AdaScale
from fairscale.optim.grad_scaler import GradScaler


def net():
    parts = torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)
    return prepared(torch.nn.Sequential(*parts))


x = data(5, 6)
plain = net()
record_step("plain", plain, plain(x))
model = net()
model[0] = checkpoint_wrapper(model[0])
record_step("checkpoint", model, model(x))
model = FlattenParamsWrapper(net())
record("flat.output", model(x))
model(x).square().sum().backward()
record("flat.grad", model.flat_param.grad)
record("flat.state", dict(sorted(model.state_dict().items())))
model = net()
optimizer = AdaScale(torch.optim.SGD(model.parameters(), lr=0.1), num_gradients_to_accumulate=2,
                     world_size=1)  # fmt: skip
for i in range(6):
    loss = model(data(5, 6, seed=i)).square().mean() / 2
    loss.backward()
    if i % 2:
        record(f"gain.{i}", optimizer.gain())
        optimizer.step()
        optimizer.zero_grad()
record("adascale", list(model.parameters()))
assert not GradScaler(enabled=False).is_enabled()
finish()
