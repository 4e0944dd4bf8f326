"""ignite: trainers, evaluators, metrics, handlers."""

import tempfile

import torch
from common import data, finish, prepared, record
from ignite.engine import Engine, Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver, EarlyStopping, EMAHandler, PiecewiseLinear
from ignite.metrics import Accuracy, ConfusionMatrix, Fbeta, Loss, Precision, Recall, RunningAverage
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = prepared(nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)))
loader = DataLoader(TensorDataset(data(40, 5), data(40, high=3)), batch_size=8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
criterion = nn.CrossEntropyLoss()
trainer = create_supervised_trainer(model, optimizer, criterion)
RunningAverage(output_transform=lambda loss: loss).attach(trainer, "running")
schedule = PiecewiseLinear(optimizer, "lr", [(0, 0.1), (10, 0.01), (15, 0.05)])
trainer.add_event_handler(Events.ITERATION_STARTED, schedule)
ema = EMAHandler(model, momentum=0.1)
ema.attach(trainer, name="average", event=Events.ITERATION_COMPLETED)
precision = Precision(average=False)
metrics = {
    "accuracy": Accuracy(), "loss": Loss(criterion), "precision": precision,
    "recall": Recall(average=True), "matrix": ConfusionMatrix(3), "f": Fbeta(1.0),
}  # fmt: skip
evaluator = create_supervised_evaluator(model, metrics)
stopping = EarlyStopping(10, lambda engine: -engine.state.metrics["loss"], trainer)
evaluator.add_event_handler(Events.COMPLETED, stopping)
losses = []
with tempfile.TemporaryDirectory() as folder:
    saver = Checkpoint({"model": model, "optimizer": optimizer}, DiskSaver(folder), n_saved=2)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, saver)

    @trainer.on(Events.EPOCH_COMPLETED)
    def evaluate(engine: Engine) -> None:
        evaluator.run(loader)
        losses.append(evaluator.state.metrics["loss"])

    trainer.run(loader, max_epochs=3)
    saved = torch.load(saver.last_checkpoint)
    record("saved", saved["model"])
record("losses", losses)
record("metrics", dict(evaluator.state.metrics))
record("running", trainer.state.metrics["running"])
record("average", dict(ema.ema_model.named_parameters()))
record("parameters", dict(model.named_parameters()))
finish()
