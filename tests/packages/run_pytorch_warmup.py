"""pytorch-warmup: schedules of learning rates at the start of training."""

import pytorch_warmup as warmup
import torch
from common import data, finish, prepared, record

for name, make in (
    ("linear", lambda o: warmup.LinearWarmup(o, warmup_period=4)),
    ("untuned_linear", warmup.UntunedLinearWarmup),
    ("exponential", lambda o: warmup.ExponentialWarmup(o, warmup_period=4)),
    ("untuned_exponential", warmup.UntunedExponentialWarmup),
    ("radam", warmup.RAdamWarmup),
):
    model = prepared(torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, betas=(0.9, 0.9))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    warm = make(optimizer)
    rates = []
    for _ in range(6):
        optimizer.zero_grad()
        model(data(3, 4)).square().mean().backward()
        optimizer.step()
        with warm.dampening():
            schedule.step()
        rates.append(optimizer.param_groups[0]["lr"])
    record(f"{name}.rates", rates)
    record(f"{name}.weights", dict(model.named_parameters()))
    record(f"{name}.state", warm.state_dict()["last_step"])
finish()
