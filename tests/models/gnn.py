"""A graph network by index_add and scatter: degrees, normalised sums, attention over edges."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class GCNConv(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(out_features))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, edge_index):
        row, col = edge_index[0], edge_index[1]
        deg = torch.zeros(x.size(0), dtype=x.dtype).scatter_add_(
            0, row, torch.ones(row.size(0), dtype=x.dtype)
        )
        deg_inv_sqrt = deg.clamp(min=1).pow(-0.5)
        norm = deg_inv_sqrt[row] * deg_inv_sqrt[col]
        x = x @ self.weight
        out = torch.zeros_like(x).index_add_(0, row, norm.unsqueeze(-1) * x[col])
        return out + x + self.bias


class GATConv(nn.Module):
    def __init__(self, in_features, out_features, heads=2):
        super().__init__()
        self.heads, self.size = heads, out_features
        self.lin = nn.Linear(in_features, heads * out_features, bias=False)
        self.att_src = nn.Parameter(torch.empty(1, heads, out_features))
        self.att_dst = nn.Parameter(torch.empty(1, heads, out_features))
        nn.init.xavier_uniform_(self.att_src)
        nn.init.xavier_uniform_(self.att_dst)

    def forward(self, x, edge_index):
        n = x.size(0)
        src, dst = edge_index.unbind(0)
        h = self.lin(x).view(-1, self.heads, self.size)
        alpha = (h * self.att_src).sum(-1)[src] + (h * self.att_dst).sum(-1)[dst]
        alpha = F.leaky_relu(alpha, 0.2).exp()
        total = torch.zeros(n, self.heads).index_add(0, dst, alpha)
        alpha = alpha / (total.index_select(0, dst) + 1e-16)
        out = torch.zeros(n, self.heads, self.size)
        index = dst.view(-1, 1, 1).expand(-1, self.heads, self.size)
        out = out.scatter_add(0, index, h[src] * alpha.unsqueeze(-1))
        return out.mean(dim=1)


class GNN(nn.Module):
    def __init__(self, in_features=6, hidden=12, classes=3, dropout=0.0):
        super().__init__()
        self.conv1 = GCNConv(in_features, hidden)
        self.conv2 = GATConv(hidden, hidden)
        self.head = nn.Linear(hidden, classes)
        self.dropout = dropout

    def forward(self, x, edge_index):
        x = F.relu(self.conv1(x, edge_index))
        x = F.dropout(x, p=self.dropout, training=self.training)
        x = F.elu(self.conv2(x, edge_index))
        return F.log_softmax(self.head(x), dim=-1)


class Trainer:
    def __init__(self, dropout=0.0):
        self.model = GNN(dropout=dropout)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.02, weight_decay=5e-4)

    def step(self, x, edge_index, y, train_mask):
        self.model.train()
        self.optimizer.zero_grad()
        out = self.model(x, edge_index)
        loss = (F.nll_loss(out, y, reduction="none") * train_mask).sum() / train_mask.sum()
        loss.backward()
        self.optimizer.step()
        return loss

    def evaluate(self, x, edge_index, y, train_mask):
        return self.model(x, edge_index).argmax(dim=1)


def batch(rng):
    return (
        rng.standard_normal((15, 6)).astype("float32"),
        rng.integers(0, 15, (2, 40)),
        rng.integers(0, 3, 15),
        rng.random(15) < 0.7,
    )
