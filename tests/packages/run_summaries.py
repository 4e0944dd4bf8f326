"""torchinfo and torchsummary: what they say of models."""

import contextlib
import io

import torch
import torchinfo
import torchsummary
from common import data, finish, prepared, record
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 5)
        self.unused = nn.Parameter(torch.zeros(3), requires_grad=False)

    def forward(self, x):
        x = self.features(x).flatten(2).transpose(1, 2)
        return self.head(self.attention(x, x, x)[0].mean(1))


for name, model, size, options in (
    ("net", Net(), (2, 3, 12, 12), {}),
    (
        "verbose",
        Net(),
        (2, 3, 12, 12),
        {
            "depth": 5,
            "col_names": (
                "input_size",
                "output_size",
                "num_params",
                "params_percent",
                "kernel_size",
                "mult_adds",
                "trainable",
            ),
            "row_settings": ("var_names", "depth"),
        },
    ),
    ("lstm", nn.LSTM(6, 7, num_layers=2, batch_first=True), (2, 5, 6), {}),
    ("transformer", nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8), {}),
):
    found = torchinfo.summary(model, input_size=size, verbose=0, **options)
    record(f"info.{name}", str(found))
    record(
        f"info.{name}.counts", [found.total_params, found.trainable_params, found.total_mult_adds]
    )
record("info.no_input", str(torchinfo.summary(Net(), verbose=0)))
record(
    "info.data",
    str(torchinfo.summary(nn.Embedding(10, 4), input_data=data(2, 3, high=10), verbose=0)),
)
for name, model, size in (
    ("net", Net().features, (3, 12, 12)),
    ("mlp", nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), (4,)),
):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        torchsummary.summary(model, size, device="cpu")
    record(f"summary.{name}", text.getvalue())
record("forward", prepared(Net()).eval()(data(2, 3, 12, 12)))
finish()
