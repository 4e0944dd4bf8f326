"""pytorch-forecasting: a data set of series, five networks, their losses."""

import numpy as np
import pandas
import torch
from common import data, finish, prepared, record, record_step
from pytorch_forecasting import (
    DeepAR,
    NBeats,
    NHiTS,
    RecurrentNetwork,
    TemporalFusionTransformer,
    TimeSeriesDataSet,
)
from pytorch_forecasting.metrics import MAE, MAPE, RMSE, SMAPE, QuantileLoss

rng = np.random.default_rng(0)
frame = pandas.DataFrame(
    {
        "time": np.tile(np.arange(30), 3),
        "group": np.repeat(["a", "b", "c"], 30),
        "value": rng.standard_normal(90).cumsum(),
    }
)


def dataset(**kwargs):
    return TimeSeriesDataSet(
        frame,
        time_idx="time",
        target="value",
        group_ids=["group"],
        max_encoder_length=10,
        max_prediction_length=4,
        time_varying_unknown_reals=["value"],
        **kwargs,
    )


def in_float64(value):
    """A batch as loaders give it, in the dtype of the networks: some gradients nearly cancel."""
    if isinstance(value, dict):
        return {key: in_float64(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(in_float64(part) for part in value)
    is_real = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if is_real else value


alone = dataset()
known = dataset(time_varying_known_reals=["time"], static_categoricals=["group"])
for name, kind, series, arguments in (
    ("nbeats", NBeats, alone, {"widths": [8, 8], "dropout": 0.0, "loss": SMAPE()}),
    ("nhits", NHiTS, alone, {"hidden_size": 8, "dropout": 0.0, "loss": SMAPE()}),
    ("rnn", RecurrentNetwork, known, {"hidden_size": 6, "dropout": 0.0}),
    ("deepar", DeepAR, known, {"hidden_size": 6, "dropout": 0.0}),
    (
        "tft",
        TemporalFusionTransformer,
        known,
        {"hidden_size": 8, "attention_head_size": 2, "dropout": 0.0, "hidden_continuous_size": 4},
    ),
):
    model = prepared(kind.from_dataset(series, **arguments))
    batch, target = next(iter(series.to_dataloader(train=False, batch_size=6)))
    batch, target = in_float64(batch), in_float64(target)
    if name == "nbeats":
        record("batch", {key: value for key, value in batch.items() if value is not None})
        record("target", target[0])
    output = model(batch)
    record_step(name, model, output["prediction"])
    record(f"{name}.loss", model.loss(output["prediction"], target))

predicted, truth = data(3, 5).abs() + 1, data(3, 5, seed=1).abs() + 1
for metric in (MAE(), MAPE(), RMSE(), SMAPE()):
    record(type(metric).__name__, metric(predicted, truth))
record("quantiles", QuantileLoss([0.1, 0.5, 0.9])(data(3, 5, 3), truth))
finish()
