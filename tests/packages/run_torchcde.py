"""torchcde: interpolation of irregular data, neural controlled differential equations."""

import torch
import torchcde
from common import data, finish, prepared, record, record_step

torch.set_default_dtype(torch.float64)
t = torch.linspace(0, 1, 8)
x = torch.cat([t.expand(5, 8)[..., None], data(5, 8, 2)], -1)
holes = x.clone()
holes[0, 2, 1] = holes[3, 0, 2] = holes[4, 7, 1] = float("nan")
for name, coefficients, interpolation in (
    ("cubic", torchcde.natural_cubic_coeffs, torchcde.CubicSpline),
    (
        "hermite",
        torchcde.hermite_cubic_coefficients_with_backward_differences,
        torchcde.CubicSpline,
    ),
    ("linear", torchcde.linear_interpolation_coeffs, torchcde.LinearInterpolation),
):
    path = interpolation(coefficients(holes))
    for place in (0.0, 0.33, 3.5, float(path.interval[-1])):
        record(
            f"{name}.{place}",
            [path.evaluate(torch.tensor(place)), path.derivative(torch.tensor(place))],
        )
rectilinear = torchcde.linear_interpolation_coeffs(holes, rectilinear=0)
record("rectilinear", rectilinear)
record("logsig", torchcde.linear_interpolation_coeffs(x, t))


class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 12)

    def forward(self, t, z):
        return self.linear(z).tanh().view(-1, 4, 3)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.start = torch.nn.Linear(3, 4)
        self.field = Field()
        self.readout = torch.nn.Linear(4, 1)

    def forward(self, coefficients, **options):
        path = torchcde.CubicSpline(coefficients)
        if "rtol" in options:  # where the spline is not smooth, the size of steps is chaotic
            options["options"] = {"jump_t": path.grid_points}
        z0 = self.start(path.evaluate(path.interval[0]))
        z = torchcde.cdeint(path, self.field, z0, path.interval, **options)
        return self.readout(z[:, -1])


coefficients = torchcde.hermite_cubic_coefficients_with_backward_differences(x)
for name, options in (
    ("rk4", {"method": "rk4", "options": {"step_size": 0.5}, "adjoint": False}),
    ("dopri5", {"adjoint": False, "rtol": 1e-8, "atol": 1e-10}),
    ("adjoint", {"adjoint": True, "rtol": 1e-8, "atol": 1e-10, "adjoint_params": ()}),
):
    model = prepared(Model())
    if name == "adjoint":
        options["adjoint_params"] = tuple(model.field.parameters())
    record_step(name, model, model(coefficients, **options))
model = prepared(Model())
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
losses = []
for _ in range(4):
    loss = (model(coefficients, method="rk4", adjoint=False) - 1).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
record("losses", losses)
finish()
