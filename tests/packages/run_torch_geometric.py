"""torch_geometric: convolutions on graphs, pooling, batches, message passing."""

import torch
from common import data, finish, prepared, record, record_step
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    GINConv,
    GraphConv,
    MessagePassing,
    SAGEConv,
    global_add_pool,
    global_max_pool,
    global_mean_pool,
)
from torch_geometric.utils import add_self_loops, degree, softmax, to_dense_adj, to_undirected

edges = torch.tensor([[0, 1, 1, 2, 3, 4, 4], [1, 0, 2, 3, 1, 2, 0]])
x = data(5, 6)
inner = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))
for name, layer in {
    "gcn": GCNConv(6, 3), "gat": GATConv(6, 3, heads=2), "sage": SAGEConv(6, 3),
    "gin": GINConv(inner), "graph": GraphConv(6, 3, aggr="max"),
}.items():  # fmt: skip
    model = prepared(layer)
    record_step(name, model, model(x, edges))


class Sum(MessagePassing):
    def __init__(self):
        super().__init__(aggr="add")
        self.linear = nn.Linear(6, 3)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=self.linear(x))

    def message(self, x_i, x_j):
        return torch.tanh(x_i - x_j)


model = prepared(Sum())
record_step("own", model, model(x, edges))
graphs = [Data(x=data(n, 6, seed=n), edge_index=edges[:, : n + 1] % n, y=n) for n in (3, 4, 5)]
batch = next(iter(DataLoader(graphs, batch_size=3)))
record("batch", [batch.x, batch.edge_index, batch.batch, batch.ptr, batch.y])
record("split", [graph.x for graph in Batch.from_data_list(graphs).to_data_list()])
record("pooled", [pool(batch.x, batch.batch) for pool in
                  (global_add_pool, global_mean_pool, global_max_pool)])  # fmt: skip
record("undirected", to_undirected(edges))
record("loops", add_self_loops(edges, num_nodes=5)[0])
record("degree", degree(edges[0], 5))
record("softmax", softmax(data(7), edges[0], num_nodes=5))
record("dense", to_dense_adj(edges))
finish()
