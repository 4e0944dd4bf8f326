"""pennylane: circuits differentiated through its torch interface, and a layer of them."""

import pennylane as qml
import torch
from common import data, finish, record

torch.set_default_dtype(torch.float64)
device = qml.device("default.qubit", wires=2)
for method in ("backprop", "parameter-shift", "adjoint"):

    @qml.qnode(device, interface="torch", diff_method=method)
    def circuit(weights):
        qml.RX(weights[0], wires=0)
        qml.RY(weights[1], wires=1)
        qml.CNOT(wires=[0, 1])
        qml.RZ(weights[2], wires=1)
        qml.RX(weights[3], wires=1)
        return qml.expval(qml.PauliZ(1))

    weights = data(4).requires_grad_()
    optimizer = torch.optim.Adam([weights], lr=0.1)
    values = []
    for _ in range(4):
        optimizer.zero_grad()
        value = circuit(weights)
        value.backward()
        optimizer.step()
        values.append(value.item())
    record(method, values)
    record(f"{method}.weights", [weights.detach(), weights.grad])


@qml.qnode(device, interface="torch")
def layered(inputs, weights):
    qml.AngleEmbedding(inputs, wires=range(2))
    qml.BasicEntanglerLayers(weights, wires=range(2))
    return [qml.expval(qml.PauliZ(i)) for i in range(2)]


layer = qml.qnn.TorchLayer(layered, {"weights": (3, 2)})
with torch.no_grad():
    layer.weights.copy_(data(3, 2, seed=1))
out = layer(data(5, 2, seed=2))
out.square().sum().backward()
record("layer", [out, layer.weights.grad])
finish()
