"""The variational autoencoder of PyTorch's examples."""

import torch
from torch import nn, optim
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self):
        super(VAE, self).__init__()
        self.fc1 = nn.Linear(64, 32)
        self.fc21 = nn.Linear(32, 4)
        self.fc22 = nn.Linear(32, 4)
        self.fc3 = nn.Linear(4, 32)
        self.fc4 = nn.Linear(32, 64)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        h3 = F.relu(self.fc3(z))
        return torch.sigmoid(self.fc4(h3))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 64))
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 64), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


class Trainer:
    def __init__(self):
        self.model = VAE()
        self.optimizer = optim.Adam(self.model.parameters(), lr=1e-2)

    def step(self, data):
        self.optimizer.zero_grad()
        recon_batch, mu, logvar = self.model(data)
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        self.optimizer.step()
        return loss / len(data)

    def evaluate(self, data):
        mu, logvar = self.model.encode(data.view(-1, 64))
        return self.model.decode(mu)


def batch(rng):
    return ((rng.random((8, 1, 8, 8)) > 0.5).astype("float32"),)
