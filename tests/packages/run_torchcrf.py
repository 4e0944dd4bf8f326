"""pytorch-crf: likelihoods of sequences of labels, masks, decoding and training."""

import torch
from common import data, finish, prepared, record, record_step
from torchcrf import CRF

for first in (False, True):
    crf = prepared(CRF(5, batch_first=first))
    shape = (3, 7) if first else (7, 3)
    emissions, tags = data(*shape, 5), data(*shape, high=5)
    mask = torch.arange(7)[None] < torch.tensor([[7], [4], [2]])
    mask = mask if first else mask.T
    for reduction in ("none", "sum", "mean", "token_mean"):
        likelihood = crf(emissions, tags, mask=mask, reduction=reduction)
        record_step(f"{first}.{reduction}", crf, likelihood)
    for i, labels in enumerate(crf.decode(emissions, mask=mask)):
        record(f"{first}.decoded.{i}", labels)
optimizer = torch.optim.Adam(crf.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    (-crf(emissions, tags, mask=mask)).backward()
    optimizer.step()
record("state", dict(crf.state_dict()))
finish()
