"""A vector-quantised autoencoder: averaged codes as buffers, straight-through gradients."""

import torch
from torch import nn
from torch.nn import functional as F


class Quantize(nn.Module):
    def __init__(self, dim, n_embed, decay=0.99, eps=1e-5):
        super().__init__()
        self.dim, self.n_embed, self.decay, self.eps = dim, n_embed, decay, eps
        embed = torch.randn(dim, n_embed)
        self.register_buffer("embed", embed)
        self.register_buffer("cluster_size", torch.zeros(n_embed))
        self.register_buffer("embed_avg", embed.clone())

    def forward(self, input):
        input = input.permute(0, 2, 3, 1)
        flatten = input.reshape(-1, self.dim)
        dist = (
            flatten.pow(2).sum(1, keepdim=True)
            - 2 * flatten @ self.embed
            + self.embed.pow(2).sum(0, keepdim=True)
        )
        _, embed_ind = (-dist).max(1)
        embed_onehot = F.one_hot(embed_ind, self.n_embed).type(flatten.dtype)
        embed_ind = embed_ind.view(*input.shape[:-1])
        quantize = F.embedding(embed_ind, self.embed.transpose(0, 1))
        if self.training:
            embed_onehot_sum = embed_onehot.sum(0)
            embed_sum = flatten.transpose(0, 1) @ embed_onehot
            self.cluster_size.data.mul_(self.decay).add_(embed_onehot_sum, alpha=1 - self.decay)
            self.embed_avg.data.mul_(self.decay).add_(embed_sum, alpha=1 - self.decay)
            n = self.cluster_size.sum()
            cluster_size = (self.cluster_size + self.eps) / (n + self.n_embed * self.eps) * n
            embed_normalized = self.embed_avg / cluster_size.unsqueeze(0)
            self.embed.data.copy_(embed_normalized)
        diff = (quantize.detach() - input).pow(2).mean()
        quantize = input + (quantize - input).detach()
        return diff * 0.25, quantize.permute(0, 3, 1, 2), embed_ind


class Residual(nn.Module):
    def __init__(self, c, r):
        super().__init__()
        self._block = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(c, r, 3, 1, 1, bias=False),
            nn.ReLU(True),
            nn.Conv2d(r, c, 1, bias=False),
        )

    def forward(self, x):
        return x + self._block(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self._encoder = nn.Sequential(
            nn.Conv2d(1, 8, 4, 2, 1), nn.ReLU(), Residual(8, 4), nn.Conv2d(8, 6, 1)
        )
        self._vq_vae = Quantize(6, 10)
        self._decoder = nn.Sequential(
            nn.Conv2d(6, 8, 3, 1, 1), Residual(8, 4), nn.ConvTranspose2d(8, 1, 4, 2, 1)
        )

    def forward(self, x):
        z = self._encoder(x)
        loss, quantized, enc = self._vq_vae(z)
        return loss, self._decoder(quantized), enc


class Trainer:
    def __init__(self):
        self.model = Model()
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-2, amsgrad=False)
        self.data_variance = 0.1

    def step(self, data):
        self.opt.zero_grad()
        vq_loss, data_recon, _ = self.model(data)
        recon_error = F.mse_loss(data_recon, data) / self.data_variance
        loss = recon_error + vq_loss
        loss.backward()
        self.opt.step()
        return loss

    def evaluate(self, x):
        return self.model(x)[1]


def batch(rng):
    return (rng.random((4, 1, 8, 8)).astype("float32"),)
