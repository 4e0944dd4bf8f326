"""A character-level transformer that learns to write like Lewis Carroll."""

import argparse
import math

import tapegrad as torch
import tapegrad.nn.functional as F
from tapegrad import nn
from tapegrad.demos.data import load_text

BLOCK_SIZE = 64
BATCH_SIZE = 12
N_EMBD, N_HEAD, N_LAYER = 64, 4, 2


class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(N_EMBD, N_EMBD, bias=False)
        self.key = nn.Linear(N_EMBD, N_EMBD, bias=False)
        self.value = nn.Linear(N_EMBD, N_EMBD, bias=False)
        self.proj = nn.Linear(N_EMBD, N_EMBD)
        self.register_buffer("mask", torch.tril(torch.ones(BLOCK_SIZE, BLOCK_SIZE)))

    def heads(self, x):
        b, t, c = x.shape
        return x.view(b, t, N_HEAD, c // N_HEAD).transpose(1, 2)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.heads(self.query(x)), self.heads(self.key(x)), self.heads(self.value(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
        scores = scores.masked_fill(self.mask[:t, :t] == 0, float("-inf"))
        y = F.softmax(scores, dim=-1) @ v
        return self.proj(y.transpose(1, 2).contiguous().view(b, t, c))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1 = nn.LayerNorm(N_EMBD)
        self.attn = CausalSelfAttention()
        self.ln2 = nn.LayerNorm(N_EMBD)
        self.mlp = nn.Sequential(
            nn.Linear(N_EMBD, 4 * N_EMBD),
            nn.GELU(),
            nn.Linear(4 * N_EMBD, N_EMBD),
        )

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, N_EMBD)
        self.wpe = nn.Embedding(BLOCK_SIZE, N_EMBD)
        self.blocks = nn.ModuleList([Block() for _ in range(N_LAYER)])
        self.ln = nn.LayerNorm(N_EMBD)
        self.head = nn.Linear(N_EMBD, vocab_size, bias=False)

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))

    @torch.no_grad()
    def generate(self, idx, max_new_tokens, temperature=0.8):
        for _ in range(max_new_tokens):
            logits = self(idx[:, -BLOCK_SIZE:])[:, -1, :] / temperature
            idx_next = torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)
            idx = torch.cat((idx, idx_next), dim=1)
        return idx


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    args = parser.parse_args()

    torch.manual_seed(0)
    text = load_text()
    chars = sorted(set(text))
    stoi = {c: i for i, c in enumerate(chars)}
    data = torch.tensor([stoi[c] for c in text])

    model = GPT(len(chars))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def get_batch():
        starts = torch.randint(len(data) - BLOCK_SIZE, (BATCH_SIZE,)).tolist()
        x = torch.stack([data[i : i + BLOCK_SIZE] for i in starts])
        y = torch.stack([data[i + 1 : i + 1 + BLOCK_SIZE] for i in starts])
        return x, y

    @torch.compile
    def train_step(x, y):
        optimizer.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    for step in range(args.steps):
        loss = train_step(*get_batch())
        if step % 100 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")

    model.eval()
    start = torch.tensor([[stoi["\n"]]])
    written = model.generate(start, max_new_tokens=min(300, args.steps))
    print("".join(chars[i] for i in written[0].tolist()))


if __name__ == "__main__":
    main()
