"""safetensors.torch: files of tensors and of models."""

import os
import tempfile

import torch
from common import data, finish, prepared, record
from safetensors import safe_open
from safetensors.torch import load, load_file, load_model, save, save_file, save_model

tensors = {
    "a": data(3, 4),
    "b": data(5, high=9),
    "c": data(2, 2).to(torch.bfloat16),
    "d": data(4).to(torch.float16),
    "e": torch.tensor([True, False]),
    "empty": torch.zeros(0, 2),
}
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "x.safetensors")
    save_file(tensors, path, metadata={"format": "pt"})
    loaded = load_file(path)
    assert loaded["c"].dtype == torch.bfloat16
    record("file", {name: loaded[name] for name in sorted(loaded)})
    with safe_open(path, framework="pt") as file:
        assert sorted(file.keys()) == sorted(tensors)
        assert file.metadata() == {"format": "pt"}
        record("one", file.get_tensor("a"))
        record("part", file.get_slice("a")[1:, :2])
    record("bytes", load(save({"a": tensors["a"]}))["a"])
    model = prepared(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 3)))
    model[1].weight = torch.nn.Parameter(model[0].weight.detach().t().contiguous())
    save_model(model, path)
    other = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 3)).double()
    record("missing", [len(part) for part in load_model(other, path)])
    record("model", dict(other.named_parameters()))
finish()
