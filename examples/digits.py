"""A classifier of handwritten digits."""

import argparse

import tapegrad as torch
import tapegrad.nn.functional as F
from tapegrad import nn
from tapegrad.demos.data import load_digits


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 256)
        self.norm = nn.BatchNorm1d(256)
        self.fc2 = nn.Linear(256, 128)
        self.dropout = nn.Dropout(0.3)
        self.fc3 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.norm(self.fc1(x)))
        x = self.dropout(F.relu(self.fc2(x)))
        return self.fc3(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    args = parser.parse_args()

    torch.manual_seed(0)
    images, labels = load_digits()
    order = torch.randperm(len(images))
    train, test = order[:1347], order[1347:]

    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)

    @torch.compile  # without this line, the step runs in eager mode
    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    model.train()
    for step in range(args.steps):
        batch = train[torch.randint(0, len(train), (64,))]
        loss = train_step(images[batch], labels[batch])
        scheduler.step()
        if step % 100 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")

    model.eval()
    with torch.no_grad():
        predicted = model(images[test]).argmax(dim=1)
    accuracy = (predicted == labels[test]).float().mean()
    print(f"test accuracy {accuracy.item():.1%}")


if __name__ == "__main__":
    main()
