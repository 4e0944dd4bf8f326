"""A variational autoencoder of handwritten digits; prints new ones as text."""

import argparse

import tapegrad as torch
import tapegrad.nn.functional as F
from tapegrad import nn
from tapegrad.demos.data import load_digits


class VAE(nn.Module):
    def __init__(self, latent=8):
        super().__init__()
        self.fc1 = nn.Linear(64, 128)
        self.fc_mu = nn.Linear(128, latent)
        self.fc_logvar = nn.Linear(128, latent)
        self.fc3 = nn.Linear(latent, 128)
        self.fc4 = nn.Linear(128, 64)

    def encode(self, x):
        h = F.relu(self.fc1(x))
        return self.fc_mu(h), self.fc_logvar(h)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + torch.randn_like(std) * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x)
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    bce = F.binary_cross_entropy(recon_x, x, reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return (bce + kld) / len(x)


def draw(images):
    """Print images side by side; a larger value is a denser character."""
    shades = " .:-=+*#%@"
    for row in range(8):
        line = "   ".join(
            "".join(2 * shades[int(value * 9.99)] for value in image[row]) for image in images
        )
        print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    args = parser.parse_args()

    torch.manual_seed(0)
    images, _ = load_digits()
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    @torch.compile
    def train_step(x):
        optimizer.zero_grad()
        recon, mu, logvar = model(x)
        loss = loss_function(recon, x, mu, logvar)
        loss.backward()
        optimizer.step()
        return loss

    for step in range(args.steps):
        batch = torch.randint(0, len(images), (128,))
        loss = train_step(images[batch])
        if step % 200 == 0:
            print(f"step {step:4d}  loss {loss.item():.2f}")

    with torch.no_grad():
        drawn = model.decode(torch.randn(4, 8))
    draw(drawn.view(-1, 8, 8).tolist())


if __name__ == "__main__":
    main()
