"""A mixture of experts: top-k routing with capacity, one-hot dispatch, a balancing loss."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class DenseMoE(nn.Module):
    def __init__(self, d=12, ffn=16, e=4, k=2):
        super().__init__()
        self.k, self.e = k, e
        self.gate = nn.Linear(d, e, bias=False)
        self.w1 = nn.Parameter(torch.randn(e, d, ffn) * d**-0.5)
        self.w2 = nn.Parameter(torch.randn(e, ffn, d) * ffn**-0.5)

    def forward(self, x):
        b, n, d = x.shape
        x = x.reshape(-1, d)
        logits = self.gate(x)
        probs = logits.softmax(-1)
        w, idx = probs.topk(self.k, dim=-1)
        w = w / w.sum(-1, keepdim=True)
        capacity = int(1.5 * self.k * x.shape[0] / self.e)
        onehot = F.one_hot(idx, self.e).float()
        flat = onehot.transpose(0, 1).reshape(-1, self.e)
        pos = (flat.cumsum(0) - 1) * flat
        keep = (pos < capacity).float() * flat
        pos = F.one_hot(pos.sum(-1).long().clamp(max=capacity - 1), capacity).float()
        disp = torch.einsum("se,sc->sec", keep, pos).view(self.k, -1, self.e, capacity)
        comb = torch.einsum("ktec,tk->tec", disp, w)
        disp = disp.sum(0)
        xin = torch.einsum("tec,td->ecd", disp, x)
        h = F.gelu(torch.bmm(xin, self.w1))
        out = torch.baddbmm(torch.zeros(self.e, capacity, d), h, self.w2)
        y = torch.einsum("tec,ecd->td", comb, out)
        return y.view(b, n, d), logits


def load_balancing_loss(logits, num_experts, top_k):
    routing_weights = F.softmax(logits, dim=-1)
    _, selected = torch.topk(routing_weights, top_k, dim=-1)
    expert_mask = F.one_hot(selected, num_experts)
    tokens_per_expert = torch.mean(expert_mask.float(), dim=0)
    router_prob = torch.mean(routing_weights, dim=0)
    return torch.sum(tokens_per_expert * router_prob.unsqueeze(0)) * num_experts


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(15, 12)
        self.moe = DenseMoE()
        self.norm = nn.RMSNorm(12)
        self.head = nn.Linear(12, 15)

    def forward(self, ids):
        x = self.emb(ids)
        y, logits = self.moe(x)
        return self.head(self.norm(x + y)), logits


class Trainer:
    def __init__(self):
        self.model = Net()
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-2)

    def step(self, ids):
        out, logits = self.model(ids)
        loss = F.cross_entropy(out[:, :-1].transpose(1, 2), ids[:, 1:], label_smoothing=0.1)
        loss = loss + 0.02 * load_balancing_loss(logits, 4, 2)
        loss = loss + 1e-3 * torch.logsumexp(logits, -1).square().mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss

    def evaluate(self, ids):
        return self.model(ids)[0]


def batch(rng):
    return (rng.integers(0, 15, (4, 7)),)
