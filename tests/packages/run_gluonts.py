"""gluonts: the torch models of forecasts, their losses and distributions."""

import torch
from common import data, finish, prepared, record, record_step
from gluonts.torch.distributions import (
    NegativeBinomialOutput,
    NormalOutput,
    QuantileOutput,
    StudentTOutput,
)
from gluonts.torch.model.d_linear.module import DLinearModel
from gluonts.torch.model.deepar.module import DeepARModel
from gluonts.torch.model.patch_tst.module import PatchTSTModel
from gluonts.torch.model.simple_feedforward.module import SimpleFeedForwardModel
from gluonts.torch.model.tft.module import TemporalFusionTransformerModel
from gluonts.torch.scaler import MeanScaler, StdScaler

torch.set_default_dtype(torch.float64)
past, seen = data(3, 12), torch.ones(3, 12)
future, known = data(3, 4), torch.ones(3, 4)
for name, scaler in (
    ("mean", MeanScaler(dim=1, keepdim=True)),
    ("std", StdScaler(dim=1, keepdim=True)),
):
    record(f"scaler.{name}", list(scaler(past, seen)))
for kind in (StudentTOutput, NormalOutput, NegativeBinomialOutput):
    output = kind()
    projection = prepared(output.get_args_proj(6))
    distribution = output.distribution(projection(data(5, 6)))
    record_step(f"{kind.__name__}", projection, distribution.log_prob(data(5, high=4).double()))
    record(f"{kind.__name__}.mean", distribution.mean)

model = SimpleFeedForwardModel(4, 12, hidden_dimensions=[8], distr_output=StudentTOutput())
model = prepared(model)
record_step("feedforward", model, model.loss(past, future, known))
model = DLinearModel(4, 12, hidden_dimension=8, distr_output=NormalOutput(), kernel_size=5)
model = prepared(model)
record_step("dlinear", model, model.loss(past, seen, future, known))
model = PatchTSTModel(
    prediction_length=4,
    context_length=12,
    patch_len=4,
    stride=2,
    padding_patch="end",
    d_model=8,
    nhead=2,
    dim_feedforward=16,
    dropout=0.0,
    activation="relu",
    norm_first=False,
    num_encoder_layers=2,
    num_feat_dynamic_real=0,
    scaling="mean",
    distr_output=StudentTOutput(),
)
model = prepared(model)
record_step("patches", model, model.loss(past, seen, future, known))

model = DeepARModel(
    freq="D",
    context_length=6,
    prediction_length=4,
    num_feat_dynamic_real=2,
    num_feat_static_real=1,
    num_feat_static_cat=1,
    cardinality=[3],
    hidden_size=8,
    dropout_rate=0.0,
    lags_seq=[1, 2, 3],
)
model = prepared(model)
length = model._past_length
past, seen = data(3, length), torch.ones(3, length)
record_step(
    "deepar",
    model,
    model.loss(
        feat_static_cat=data(3, 1, high=3),
        feat_static_real=data(3, 1),
        past_time_feat=data(3, length, 2),
        past_target=past,
        past_observed_values=seen,
        future_time_feat=data(3, 4, 2),
        future_target=future,
        future_observed_values=known,
    ),
)
model = TemporalFusionTransformerModel(
    context_length=12, prediction_length=4, d_var=8, d_hidden=8, num_heads=2, dropout_rate=0.0,
    distr_output=QuantileOutput([0.1, 0.5, 0.9]),
)  # fmt: skip
model = prepared(model)
record_step(
    "tft",
    model,
    model.loss(
        past_target=data(3, 12),
        past_observed_values=torch.ones(3, 12),
        feat_static_real=data(3, 1),
        feat_static_cat=data(3, 1, high=1),
        feat_dynamic_real=data(3, 16, 1),
        future_target=future,
        future_observed_values=known,
    ),
)
finish()
