"""accelerate: a training loop, accumulation, clipping, checkpoints; the Trainer of transformers."""

import os
import tempfile

import torch
import transformers as tr
from accelerate import Accelerator
from accelerate.utils import set_seed
from common import data, finish, prepared, record
from torch.utils.data import DataLoader, TensorDataset

set_seed(0)
model = prepared(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
dataset = TensorDataset(data(32, 4), data(32, 1, seed=1))
accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
model, optimizer, loader, schedule = accelerator.prepare(
    model, optimizer, DataLoader(dataset, batch_size=4), schedule
)
losses = []
for x, y in loader:
    with accelerator.accumulate(model):
        loss = torch.nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            record(f"norm.{len(losses)}", accelerator.clip_grad_norm_(model.parameters(), 1.0))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    losses.append(accelerator.gather_for_metrics(loss.detach().reshape(1)))
record("losses", losses)
record("parameters", dict(accelerator.unwrap_model(model).named_parameters()))
with tempfile.TemporaryDirectory() as folder:
    accelerator.save_state(folder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    accelerator.load_state(folder)
    record("restored", dict(accelerator.unwrap_model(model).named_parameters()))
    record("files", len(os.listdir(folder)))

config = tr.GPT2Config(
    vocab_size=30, n_embd=16, n_layer=1, n_head=2, n_positions=16, resid_pdrop=0.0, embd_pdrop=0.0,
    attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
)  # fmt: skip
network = prepared(tr.GPT2LMHeadModel(config))
rows = [{"input_ids": row, "labels": row} for row in data(16, 8, high=30)]


class InOrder(tr.Trainer):
    def _get_train_sampler(self, *args):
        return torch.utils.data.SequentialSampler(self.train_dataset)


with tempfile.TemporaryDirectory() as folder:
    options = tr.TrainingArguments(
        folder, max_steps=4, per_device_train_batch_size=4, learning_rate=1e-2, report_to=[],
        save_strategy="no", use_cpu=True, disable_tqdm=True, logging_steps=1,
    )  # fmt: skip
    trainer = InOrder(network, options, train_dataset=rows, eval_dataset=rows)
    record("trainer.loss", trainer.train().training_loss)
    record("trainer.evaluated", trainer.evaluate()["eval_loss"])
record("trainer.parameters", dict(network.named_parameters()))
finish()
