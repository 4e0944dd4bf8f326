"""lightning: a Trainer with callbacks, logging, checkpoints; Fabric."""

import logging
import tempfile
import warnings

import lightning as L
import torch
from common import data, finish, prepared, record
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Lit(L.LightningModule):
    def __init__(self, hidden=8):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 2))
        self.losses = []

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("train", loss)
        self.losses.append(loss.detach().clone())
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        self.log("valid", nn.functional.cross_entropy(self.net(x), y))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


loader = DataLoader(TensorDataset(data(32, 4), data(32, high=2)), batch_size=8)
model = prepared(Lit())
with tempfile.TemporaryDirectory() as folder:
    saver = ModelCheckpoint(folder, monitor="valid", save_last=True)
    trainer = L.Trainer(
        max_epochs=3, accelerator="cpu", devices=1, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder, gradient_clip_val=0.5,
        accumulate_grad_batches=2, logger=CSVLogger(folder), log_every_n_steps=1,
        callbacks=[saver, EarlyStopping("valid", patience=5), LearningRateMonitor()],
    )  # fmt: skip
    trainer.fit(model, loader, loader)
    record("losses", model.losses)
    record("parameters", dict(model.named_parameters()))
    record("valid", trainer.validate(model, loader, verbose=False)[0]["valid"])
    loaded = Lit.load_from_checkpoint(saver.last_model_path, weights_only=False).double()
    record("loaded", dict(loaded.named_parameters()))

fabric = L.Fabric(accelerator="cpu", devices=1)
network = prepared(nn.Linear(4, 2))
network, optimizer = fabric.setup(network, torch.optim.SGD(network.parameters(), lr=0.1))
for x, y in fabric.setup_dataloaders(loader):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(network(x), y)
    fabric.backward(loss)
    fabric.clip_gradients(network, optimizer, max_norm=1.0)
    optimizer.step()
record("fabric", list(network.parameters()))
finish()
