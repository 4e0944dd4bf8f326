"""snnTorch: neurons, their surrogate gradients, networks over time, in float32."""

import snntorch
import torch
from common import data, finish, prepared, record, record_step
from snntorch import functional, spikegen, surrogate, utils
from torch import nn

for name in ("fast_sigmoid", "atan", "triangular", "straight_through_estimator"):
    x = data(4, 5).float().requires_grad_()
    leaky = snntorch.Leaky(beta=0.8, spike_grad=getattr(surrogate, name)())
    memory, spikes = leaky.init_leaky(), []
    for _ in range(4):
        spike, memory = leaky(x, memory)
        spikes.append(spike)
    (torch.stack(spikes).sum(0) * data(4, 5, seed=1) + memory).sum().backward()
    record(name, [memory, x.grad, *spikes])
for name, cell in (
    ("synaptic", snntorch.Synaptic(alpha=0.9, beta=0.8, init_hidden=True)),
    ("lapicque", snntorch.Lapicque(beta=0.7, init_hidden=True, reset_mechanism="zero")),
    ("alpha", snntorch.Alpha(alpha=0.9, beta=0.8, init_hidden=True)),
    ("learned", snntorch.Leaky(beta=0.6, learn_beta=True, learn_threshold=True, init_hidden=True)),
):
    model = prepared(nn.Sequential(nn.Linear(5, 6), cell, nn.Linear(6, 3)))
    utils.reset(model)
    model.float()
    record_step(name, model, torch.stack([model(data(4, 5, seed=i).float()) for i in range(4)]))
counts = functional.ce_count_loss(num_classes=3)(torch.ones(4, 2, 3), torch.tensor([0, 2]))
record("count", counts)
record("rate", spikegen.latency(data(3, 4).sigmoid(), num_steps=5, normalize=True, linear=True))
finish()
