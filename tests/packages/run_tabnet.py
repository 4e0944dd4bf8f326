"""pytorch-tabnet: the networks, and a classifier and a regressor that are trained and saved."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from common import data, finish, prepared, record, record_step
from pytorch_tabnet.multiclass_utils import infer_output_dim
from pytorch_tabnet.sparsemax import Entmax15, Sparsemax
from pytorch_tabnet.tab_model import TabNetClassifier, TabNetRegressor
from pytorch_tabnet.tab_network import TabNet

for name, layer in (("sparsemax", Sparsemax()), ("entmax", Entmax15())):
    x = data(5, 6).requires_grad_()
    y = layer(x)
    (y * data(5, 6, seed=1)).sum().backward()
    record(name, [y, x.grad])
group = torch.eye(6)
for mask in ("sparsemax", "entmax"):
    net = prepared(
        TabNet(6, 3, n_d=4, n_a=4, mask_type=mask, group_attention_matrix=group.double())
    )
    out, loss = net(data(32, 6))
    record(f"{mask}.loss", loss)
    record_step(f"{mask}.net", net, out)
record("dims", infer_output_dim(np.array([0, 1, 2, 1])))

X = data(64, 6).float().numpy()
for kind, y in (
    (TabNetClassifier, data(64, high=3).numpy()),
    (TabNetRegressor, data(64, 1, seed=3).float().numpy()),
):
    model = kind(
        n_d=4, n_a=4, n_steps=2, verbose=0, seed=0, optimizer_params={"lr": 0.02}, device_name="cpu"
    )
    options = {"batch_size": 64, "virtual_batch_size": 32, "drop_last": False, "num_workers": 0}
    model.fit(X, y, max_epochs=1, patience=0, compute_importance=False, **options)
    prepared(model.network, seed=5).float()
    for buffer_name, buffer in model.network.named_buffers():
        if "running" in buffer_name:
            buffer.fill_(1.0 if "var" in buffer_name else 0.0)
    found = model.predict(X)
    record(f"{kind.__name__}.predict", found)
    explained, masks = model.explain(X)
    record(f"{kind.__name__}.explain", [explained, *masks.values()])
    with tempfile.TemporaryDirectory() as folder:
        path = model.save_model(str(Path(folder) / "model"))
        other = kind()
        other.load_model(path)
        record(f"{kind.__name__}.loaded", bool(np.allclose(other.predict(X), found)))
finish()
