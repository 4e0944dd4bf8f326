"""tapegrad in the place of PyTorch: programs that say `import torch`, in a Python without it."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def without_torch(tmp_path_factory):
    """A folder with everything that is installed except PyTorch."""
    folder = tmp_path_factory.mktemp("installed")
    for item in Path(sysconfig.get_path("purelib")).iterdir():
        if not item.name.startswith(("torch", "functorch", "__editable__", "_tapegrad")):
            (folder / item.name).symlink_to(item)
    return folder


@pytest.fixture
def python(without_torch, tmp_path):
    """Runs Python without PyTorch; returns the finished process."""

    def run(*arguments, check=True, path=(), text=None):
        folders = [str(ROOT), *map(str, path), str(without_torch)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
        done = subprocess.run(
            [sys.executable, "-S", *map(str, arguments)],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            input=text,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    return run


@pytest.fixture
def program(python, tmp_path):
    """Runs a text by `tapegrad run` and returns what it printed, as lines."""

    def run(text, *arguments):
        (tmp_path / "program.py").write_text(text)
        return python("-m", "tapegrad", "run", "program.py", *arguments).stdout.splitlines()

    return run


def test_names_are_those_of_torch(program):
    printed = program(
        """
import torch
from torch import nn
print(torch.__name__, torch.float32, torch.ones(2).type(), torch.Size([2, 3]), torch.strided)
print(torch.Tensor, torch.dtype, torch.device, nn.Linear, nn.Parameter, nn.LayerNorm)
print(torch.optim.Adam, torch.optim.lr_scheduler.StepLR, torch.utils.data.DataLoader)
print(torch.ones(2).type(torch.LongTensor).dtype, torch.ones(2).type("torch.DoubleTensor").dtype)
print(torch.typename(torch.ones(2)), torch.typename(nn.ReLU()))
print(isinstance(torch.uint16, torch.dtype))
print(torch.channels_last, torch.memory_format, torch.layout, torch.sparse_coo)
"""
    )
    assert printed == [
        "torch torch.float32 torch.FloatTensor torch.Size([2, 3]) torch.strided",
        "<class 'torch.Tensor'> <class 'torch.dtype'> <class 'torch.device'> "
        "<class 'torch.nn.modules.linear.Linear'> <class 'torch.nn.parameter.Parameter'> "
        "<class 'torch.nn.modules.normalization.LayerNorm'>",
        "<class 'torch.optim.adam.Adam'> <class 'torch.optim.lr_scheduler.StepLR'> "
        "<class 'torch.utils.data.dataloader.DataLoader'>",
        "torch.int64 torch.float64",
        "torch.FloatTensor torch.nn.modules.activation.ReLU",
        "True",
        "torch.channels_last <class 'torch.memory_format'> <class 'torch.layout'> torch.sparse_coo",
    ]


def test_a_function_hides_the_module_of_its_name(program):
    printed = program(
        """
import torch, torch.autograd.gradcheck
from torch.autograd.gradcheck import GradcheckError, gradcheck
from torch.nn.utils.weight_norm import weight_norm
print(torch.autograd.gradcheck is gradcheck, torch.nn.utils.weight_norm is weight_norm)
"""
    )
    assert printed == ["True True"]


def test_packages_find_it(program):
    printed = program(
        """
import importlib.metadata, importlib.util, sys
assert importlib.util.find_spec("torch") is not None
assert "tapegrad" not in sys.modules  # nothing is loaded before torch is imported
print(importlib.metadata.version("torch"), importlib.metadata.packages_distributions()["torch"])
print(importlib.util.find_spec("torch.nn") is not None, importlib.util.find_spec("torch.nothing"))
import torch
version = torch.__version__
print(version, version >= "2.9", version < (2, 14), torch.version.cuda)
print(importlib.util.find_spec("torch").name, torch.__version__.split("+")[0])
"""
    )
    assert printed == [
        "2.13.0+tapegrad ['torch']",
        "True None",
        "2.13.0+tapegrad True True None",
        "torch 2.13.0",
    ]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("torch.nn.modules.batchnorm", "_BatchNorm BatchNorm2d"),
        ("torch.nn.modules.utils", "_pair _ntuple"),
        ("torch.nn.modules.linear", "Linear"),
        ("torch.nn.functional", "relu scaled_dot_product_attention"),
        ("torch.nn.init", "trunc_normal_"),
        ("torch.nn.parameter", "Parameter"),
        ("torch.nn.utils.rnn", "pack_padded_sequence"),
        ("torch.nn.utils.parametrizations", "weight_norm"),
        ("torch.nn.parallel", "DistributedDataParallel"),
        ("torch.optim.optimizer", "Optimizer"),
        ("torch.optim.lr_scheduler", "LambdaLR _LRScheduler LRScheduler"),
        ("torch.utils.data", "DataLoader Dataset"),
        ("torch.utils.data.dataset", "Dataset IterableDataset"),
        ("torch.utils.data._utils.collate", "default_collate"),
        ("torch.utils.checkpoint", "checkpoint"),
        ("torch.utils._pytree", "tree_map tree_flatten register_pytree_node"),
        ("torch.utils.hooks", "RemovableHandle"),
        ("torch.autograd", "Function Variable grad"),
        ("torch.autograd.function", "Function once_differentiable"),
        ("torch.autograd.grad_mode", "no_grad"),
        ("torch.autograd.variable", "Variable"),
        ("torch.amp", "autocast GradScaler"),
        ("torch.cuda.amp", "autocast GradScaler"),
        ("torch.distributed", "is_available is_initialized"),
        ("torch.multiprocessing", "spawn Queue"),
        ("torch.jit", "script ignore unused is_scripting Final annotate"),
        ("torch.fx", "wrap GraphModule Tracer"),
        ("torch.compiler", "is_compiling disable"),
        ("torch.library", "custom_op register_fake Library"),
        ("torch.hub", "load_state_dict_from_url"),
        ("torch.serialization", "save load add_safe_globals"),
        ("torch.version", "cuda hip"),
        ("torch.onnx", "is_in_onnx_export"),
        ("torch", "save load no_grad compile Tensor"),
    ],
)
def test_paths_are_those_of_torch(path, names):
    """In this process, without installing: what the finder would show."""
    from tapegrad.compat.facade import Facade
    from tapegrad.compat.finder import sources_of
    from tapegrad.compat.paths import PATHS

    sources = sources_of(path)
    assert sources, "no such module"
    for name in names.split():
        only = PATHS[path].names if path in PATHS else ()
        found = [s for s in sources if hasattr(s, name) and (not only or name in only)]
        assert found, f"{path} has no {name}"
    assert issubclass(Facade, type(os))


def test_modules_are_one_and_the_same(program):
    printed = program(
        """
import sys, torch, torch.nn, torch.nn.functional as F, torch.nn.modules.linear
from torch.nn.modules import Linear
assert torch.nn.functional is F is sys.modules["torch.nn.functional"]
assert Linear is torch.nn.Linear is torch.nn.modules.linear.Linear
assert torch.utils.data.Dataset is torch.utils.data.dataset.Dataset
assert "Linear" in dir(torch.nn) and "Linear" in torch.nn.__all__ and "Linear" in vars(torch.nn)
from torch.nn import *
assert Sequential is torch.nn.Sequential
for missing in ("torch.core", "torch.replay", "torch.demos", "torch.nothing", "torch.nn.nothing"):
    try:
        __import__(missing)
    except ModuleNotFoundError as error:
        print(error)
for name in ("nothing", "relux"):
    try:
        getattr(torch, name)
    except AttributeError as error:
        print(error)
calls = []
plain = torch.nn.init.kaiming_uniform_
torch.nn.init.kaiming_uniform_ = lambda *a, **k: calls.append(1)
torch.nn.Linear(2, 2)
torch.nn.init.kaiming_uniform_ = plain
print(len(calls))
"""
    )
    assert printed == [
        "No module named 'torch.core'",
        "No module named 'torch.replay'",
        "No module named 'torch.demos'",
        "No module named 'torch.nothing'",
        "No module named 'torch.nn.nothing'",
        "module 'torch' has no attribute 'nothing'",
        "module 'torch' has no attribute 'relux'; did you mean 'relu'?",
        "1",
    ]


def test_run_is_like_python(python, tmp_path):
    script = tmp_path / "a b.py"
    script.write_text(
        "import sys, beside\n"
        "print(__name__, __file__, sys.argv[1:], beside.here, sys.path[0])\n"
        "sys.stdin.readline() == 'line\\n' or 1 / 0\n"
        "import torch\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    (tmp_path / "beside.py").write_text("here = __name__\n")
    done = python("-m", "tapegrad", "run", script, "3", "--help", "-m", check=False, text="line\n")
    assert done.returncode == 3
    assert done.stdout == f"__main__ {script} ['3', '--help', '-m'] beside {tmp_path}\n"
    script.write_text("def f():\n    raise KeyError('x')\n\n\nf()\n")
    plain, ours = (
        python(*how, script, check=False) for how in (("-S",), ("-m", "tapegrad", "run"))
    )
    assert (ours.returncode, ours.stderr) == (plain.returncode, plain.stderr)
    (tmp_path / "mod.py").write_text("import sys\nprint(__name__, sys.argv[1:], __spec__.name)\n")
    done = python("-m", "tapegrad", "run", "-m", "mod", "-x", "1")
    assert done.stdout == "__main__ ['-x', '1'] mod\n"
    missing = python("-m", "tapegrad", "run", "nothing.py", check=False)
    assert missing.returncode == 2
    assert "nothing.py" in missing.stderr
    for arguments in ([], ["--"]):
        refused = python("-m", "tapegrad", "run", *arguments, check=False)
        assert refused.returncode == 2
        assert "which program" in refused.stderr


def test_an_installed_torch_is_not_hidden(python, tmp_path):
    (tmp_path / "elsewhere" / "torch").mkdir(parents=True)
    (tmp_path / "elsewhere" / "torch" / "__init__.py").write_text("from_disk = True\n")
    (tmp_path / "p.py").write_text("import torch\nprint(hasattr(torch, 'from_disk'))\n")
    path = [tmp_path / "elsewhere"]
    refused = python("-m", "tapegrad", "run", "p.py", path=path, check=False)
    assert refused.returncode == 2
    assert "PyTorch is installed" in refused.stderr
    assert "--shadow" in refused.stderr
    assert refused.stdout == ""
    shadowed = python("-m", "tapegrad", "run", "--shadow", "p.py", path=path)
    assert shadowed.stdout == "False\n"
    done = python(
        "-c",
        "import tapegrad\n"
        "try: tapegrad.install_as_torch()\n"
        "except RuntimeError as error: print('shadow=True' in str(error))\n"
        "import torch\n"
        "try: tapegrad.install_as_torch(shadow=True)\n"
        "except RuntimeError as error: print('imported already' in str(error), torch.from_disk)\n",
        path=path,
    )
    assert done.stdout == "True\nTrue True\n"
    done = python(
        "-c",
        "import tapegrad\ntapegrad.install_as_torch(shadow=True)\nimport torch\n"
        "print(torch.float32, hasattr(torch, 'from_disk'))\nimport importlib.metadata as m\n"
        "print(m.version('torch'))",
        path=path,
    )
    assert done.stdout == "torch.float32 False\n2.13.0+tapegrad\n"


def test_install_in_a_process(python):
    done = python(
        "-c",
        "import tapegrad, pickle\n"
        "print(tapegrad.float32, tapegrad.Tensor)\n"
        "tapegrad.install_as_torch(); tapegrad.install_as_torch()\n"
        "import torch\n"
        "print(tapegrad.float32, torch.float32 is tapegrad.float32)\n"
        "import importlib.metadata as m; print(m.version('torch'))\n"
        "x = pickle.dumps([torch.float32, torch.Size([2]), torch.nn.Linear(1, 1)], 0)\n"
        "names = [b'torch\\nfloat32', b'torch.nn.modules.linear\\nLinear', b'torch\\nSize']\n"
        "print([b'c' + name + b'\\n' in x for name in names])\n"
        "print(pickle.loads(x))\n",
    )
    assert done.stdout.splitlines() == [
        "tapegrad.float32 <class 'tapegrad.core.tensor.Tensor'>",
        "torch.float32 True",
        "2.13.0+tapegrad",
        "[True, True, True]",
        "[torch.float32, torch.Size([2]), Linear(in_features=1, out_features=1, bias=True)]",
    ]


def test_processes_that_are_started_have_it_too(program):
    printed = program(
        """
import subprocess, sys
import torch, torch.multiprocessing as mp

def work(rank, queue):
    queue.put((rank, str(torch.ones(2).sum().dtype)))

if __name__ == "__main__":
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(work, args=(queue,), nprocs=1)
    print(queue.get())
    print(subprocess.run([sys.executable, "-S", "-c", "import torch; print(torch)"],
                         capture_output=True, text=True, check=True).stdout.strip())
"""
    )
    assert printed == ["(0, 'torch.float32')", "<module 'torch': tapegrad under PyTorch's name>"]


def test_a_script_trains_and_compiles(program):
    printed = program(
        """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
x = torch.randn(64, 4)
data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16)

@torch.compile
def step(x, y):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss

first = last = None
for epoch in range(20):
    for batch in data:
        last = step(*batch).item()
        first = last if first is None else first
print(last < first)
print(step.explain().splitlines()[0].split(";")[0])
"""
    )
    assert printed == ["True", "step: 3 recordings, 77 replays"]


def test_shims_are_honest(program):
    printed = program(
        """
import torch, typing

@torch.jit.script
def f(x): return x + 1

@torch.jit.ignore(drop=True)
def g(x): return x

@torch.compiler.disable(recursive=False)
def h(x): return x

torch.fx.wrap("len")
assert f(1) == 2 and g(1) == h(1) == 1 and torch.jit.unused(f) is f and torch.fx.wrap(f) is f
assert not (torch.jit.is_scripting() or torch.jit.is_tracing() or torch.compiler.is_compiling())
assert torch.jit.Final is typing.Final and not torch.onnx.is_in_onnx_export()
assert torch.jit.annotate(typing.List[int], [1]) == [1]
torch._assert(True, "fine")
assert not isinstance(torch.nn.Linear(1, 1), (torch.jit.ScriptModule, torch.fx.GraphModule))
assert torch.qint8 != torch.int8 and {torch.qint8: 1}[torch.qint8] and torch.qint8.itemsize == 1
assert torch.sym_int(2.5) == 2 and torch.sym_max(1, 2.0) == 2.0

def refused(kind, call):
    try:
        call()
    except kind as error:
        print(error)
    else:
        raise SystemExit(f"{call} did not raise")

model = torch.nn.Linear(1, 1)
refused(AssertionError, lambda: torch._assert(False, "wrong"))
refused(OSError, lambda: torch.ops.load_library("lib.so"))
refused(NotImplementedError, lambda: torch.jit.save(model, "x"))
refused(NotImplementedError, lambda: torch.jit.trace(model, torch.ones(1)))
refused(NotImplementedError, lambda: torch.fx.Tracer())
refused(NotImplementedError, lambda: torch.fx.symbolic_trace(model))
refused(NotImplementedError, lambda: torch.export.export(model, ()))
refused(NotImplementedError, lambda: torch.SymInt(1))
refused(TypeError, lambda: torch.zeros(2, dtype=torch.qint8))
refused(AttributeError, lambda: torch.ops.mine.nothing)
refused(RuntimeError, lambda: torch.hub.load_state_dict_from_url("https://example.org/w.pt"))
"""
    )
    assert [line.split(";")[0] for line in printed] == [
        "wrong",
        "lib.so: operations compiled for PyTorch cannot be loaded by tapegrad",
        "torch.jit.save does not exist in tapegrad",
        "torch.jit.trace does not exist in tapegrad",
        "torch.fx.Tracer does not exist in tapegrad",
        "torch.fx.symbolic_trace does not exist in tapegrad",
        "torch.export.export does not exist in tapegrad",
        "torch.SymInt does not exist in tapegrad",
        "torch.qint8 is a name only: tapegrad has no tensors of this dtype",
        "'_OpNamespace' 'mine' object has no attribute 'nothing'",
        "torch.hub downloads nothing here",
    ]
    assert all("; " in line for line in printed[2:]), "an error says what to use"


def test_registered_operations(program):
    printed = program(
        """
import torch

@torch.library.custom_op("mine::scale", mutates_args=())
def scale(x: torch.Tensor, by: float = 2.0) -> torch.Tensor:
    return x * by

@scale.register_fake
def _(x, by=2.0): return torch.empty_like(x)

x = torch.ones(2, dtype=torch.float64, requires_grad=True)
print(scale(x).requires_grad, torch.ops.mine.scale(x, by=3.0).tolist())

def setup(ctx, inputs, output):
    x, ctx.by = inputs

scale.register_autograd(lambda ctx, g: (g * ctx.by, None), setup_context=setup)
(gradient,) = torch.autograd.grad(torch.ops.mine.scale.default(x, 5.0).sum(), x)
print(gradient.tolist(), torch.autograd.gradcheck(lambda x: scale(x, 4.0), (x,)))

library = torch.library.Library("other", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2, "CPU")
print(torch.ops.other.twice(torch.ones(1)).tolist(), dir(torch.ops.other))
"""
    )
    assert printed == [
        "False [3.0, 3.0]",
        "[5.0, 5.0] True",
        "[2.0] ['twice']",
    ]


def test_hub_of_a_folder(program, tmp_path):
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "hubconf.py").write_text(
        "import torch\nfrom helper import size\n\n\n"
        'def small(bias=True):\n    "A layer."\n    return torch.nn.Linear(size, 1, bias=bias)\n'
    )
    (tmp_path / "repo" / "helper.py").write_text("size = 3\n")
    printed = program(
        """
import torch
print(torch.hub.load("repo", "small", source="local", bias=False))
print(torch.hub.help("repo", "small", source="local"), torch.hub.list("repo", source="local"))
torch.hub.set_dir("hub")
import os; os.makedirs("hub/checkpoints")
torch.save({"w": torch.ones(1)}, "hub/checkpoints/w.pt")
print(torch.hub.load_state_dict_from_url("https://example.org/w.pt"))
"""
    )
    assert printed == [
        "Linear(in_features=3, out_features=1, bias=False)",
        "A layer. ['small']",
        "{'w': tensor([1.])}",
    ]


SAVED = """
import json, sys, collections
import torch
kind = sys.argv[1]
x = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
value = collections.OrderedDict(
    whole=x, part=x[1:, 2], turned=x.t(), scalar=torch.tensor(3), flag=torch.tensor([True, False]),
    half=torch.tensor([1.5, -2.0], dtype=torch.float16),
    brain=torch.tensor([1.5], dtype=torch.bfloat16),
    bytes=torch.tensor([1, 255], dtype=torch.uint8), empty=torch.zeros(0, 3),
    weight=torch.nn.Parameter(torch.ones(2)), frozen=torch.nn.Parameter(torch.ones(2), False),
    leaf=torch.ones(1, requires_grad=True),
    plain={"lr": 0.1, "betas": (0.9, 0.999), "names": ["a", None, True, b"x"], 3: {1, 2}},
    dtype=torch.float16, device=torch.device("cpu"), size=x.shape,
)
"""
CHECKED = """
def check(value):
    assert list(value) == ["whole", "part", "turned", "scalar", "flag", "half", "brain", "bytes",
                           "empty", "weight", "frozen", "leaf", "plain", "dtype", "device", "size"]
    assert value["whole"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert value["whole"].dtype is torch.float64 and value["brain"].dtype is torch.bfloat16
    assert value["turned"].stride() == (1, 4) and value["part"].tolist() == [6, 10]
    value["whole"][1, 2] = 77
    assert value["part"][0] == 77 and value["turned"][2, 1] == 77
    assert value["scalar"].shape == () and value["flag"].tolist() == [True, False]
    assert value["half"].tolist() == [1.5, -2] and value["bytes"].tolist() == [1, 255]
    assert value["empty"].shape == (0, 3) and value["size"] == torch.Size([3, 4])
    assert isinstance(value["weight"], torch.nn.Parameter) and value["weight"].requires_grad
    assert isinstance(value["frozen"], torch.nn.Parameter) and not value["frozen"].requires_grad
    assert value["leaf"].requires_grad and value["dtype"] is torch.float16
    assert value["device"] == torch.device("cpu") and value["plain"]["names"][3] == b"x"
    assert value["plain"] == {"lr": 0.1, "betas": (0.9, 0.999), "names": ["a", None, True, b"x"],
                              3: {1, 2}}
"""


def test_files_are_those_of_torch(program):
    program(
        SAVED
        + CHECKED
        + """
import io, pathlib, zipfile
torch.save(value, "a.pt")
check(torch.load("a.pt"))
check(torch.load(pathlib.Path("a.pt"), weights_only=False, map_location="cpu"))
stream = io.BytesIO()
torch.save(value, stream)
stream.seek(0)
check(torch.load(stream, weights_only=True))
names = {n.partition("/")[2] for n in zipfile.ZipFile("a.pt").namelist()}
assert {"data.pkl", "byteorder", "version", "data/0"} <= names and "data/9" in names
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
torch.save(model, "m.pt")
try:
    torch.load("m.pt")
except RuntimeError as error:
    assert "torch.nn.modules.container.Sequential" in str(error), error
else:
    raise SystemExit("code was run")
again = torch.load("m.pt", weights_only=False)
assert (again[0].weight == model[0].weight).all() and again.training

class Mine:
    def __init__(self): self.x = torch.ones(1)

torch.save(Mine(), "c.pt")
with torch.serialization.safe_globals([Mine]):
    assert torch.load("c.pt").x.item() == 1
""",
        "facade",
    )


@pytest.mark.oracle
def test_files_go_to_torch_and_back(python, tmp_path):
    """A file of the facade is read by PyTorch, and the other way round."""
    (tmp_path / "save.py").write_text(SAVED + "torch.save(value, sys.argv[2])\n")
    (tmp_path / "load.py").write_text(
        "import sys, torch\n" + CHECKED + "check(torch.load(sys.argv[2]))\n"
        "check(torch.load(sys.argv[2], weights_only=False))\n"
        "if sys.argv[1] == 'torch': check(torch.load(sys.argv[2], mmap=True))\n"
    )

    def torch(*arguments):
        subprocess.run([sys.executable, *arguments], cwd=tmp_path, check=True, timeout=120)

    python("-m", "tapegrad", "run", "save.py", "facade", "ours.pt")
    torch("load.py", "torch", "ours.pt")
    torch("save.py", "torch", "theirs.pt")
    python("-m", "tapegrad", "run", "load.py", "facade", "theirs.pt")


def test_trees(program):
    printed = program(
        """
import collections, json, torch
from torch.utils import _pytree as tree

Pair = collections.namedtuple("Pair", "a b")
value = {"x": [1, (2, Pair(3, [4]))], "y": collections.OrderedDict(z=5), "n": None}
leaves, spec = tree.tree_flatten(value)
assert leaves == [1, 2, 3, 4, 5, None] and spec.num_leaves == 6
assert tree.tree_unflatten(leaves, spec) == value
assert type(tree.tree_unflatten(leaves, spec)["x"][1][1]) is Pair
assert tree.tree_map(lambda a, b: a + b, [1, (2,)], [10, (20,)]) == [11, (22,)]
assert tree.tree_map_only(int, lambda n: -n, {"a": 1, "b": "c"}) == {"a": -1, "b": "c"}

class Box:
    def __init__(self, inside): self.inside = inside

assert tree.tree_leaves(Box(1))[0].inside == 1
tree.register_pytree_node(Box, lambda box: ([box.inside], None), lambda v, _: Box(*v))
assert tree.tree_map(lambda n: n + 1, Box([1, 2])).inside == [2, 3]
assert tree.tree_structure([1, {"a": 2}]) == tree.tree_structure([3, {"a": 4}])
assert tree.tree_structure([1, {"a": 2}]) != tree.tree_structure([1, {"b": 2}])

ordered = collections.OrderedDict(b=1, a=2)
by_default = collections.defaultdict(list, a=10, b=20)
assert tree.tree_map(lambda x, y: x + y, ordered, by_default) == {"b": 21, "a": 12}
assert tree.tree_map(lambda x, y: x - y, by_default, ordered) == {"a": 8, "b": 19}
for first, second in (({"a": 1}, {"b": 1}), ({"a": 1}, [1]), ([1], [1, 2])):
    try:
        tree.tree_map(lambda x, y: x, first, second)
    except ValueError as error:
        assert str(error).startswith("expected "), error
    else:
        raise AssertionError((first, second))
try:
    tree.tree_unflatten([1], spec)
except ValueError as error:
    print(error)
print(tree.keystr(tree.tree_leaves_with_path({"a": [1, 2]})[1][0]))
"""
    )
    assert printed == ["a tree of 6 leaves cannot have 1", "['a'][1]"]


def test_iterators_of_loaders_have_classes(program):
    printed = program(
        """
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter, _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter)

class Squares(_BaseDataLoaderIter):
    def __init__(self, loader):
        super().__init__(loader)
        self.rest = iter(loader.dataset)

    def _next_data(self):
        return next(self.rest) ** 2

loader = DataLoader(range(4), batch_size=2)
assert isinstance(_BaseDataLoaderIter, type) and isinstance(iter(loader), _BaseDataLoaderIter)
assert issubclass(_MultiProcessingDataLoaderIter, _BaseDataLoaderIter)
assert not isinstance(iter([]), _BaseDataLoaderIter)
print(list(Squares(loader)), len(Squares(loader)))
print([batch.tolist() for batch in _SingleProcessDataLoaderIter(loader)])
try:
    next(_BaseDataLoaderIter(loader))
except NotImplementedError as error:
    print(error)
"""
    )
    assert printed == [
        "[0, 1, 4, 9] 2",
        "[[0, 1], [2, 3]]",
        "BatchIterator needs a method _next_data",
    ]


def test_the_version_stands_in_one_place():
    from importlib.metadata import PathDistribution

    from tapegrad.compat.install import SITE
    from tapegrad.compat.torch.torch_version import VERSION

    (folder,) = Path(SITE).glob("*.dist-info")
    assert PathDistribution(folder).version == VERSION
    assert folder.name == f"torch-{VERSION}.dist-info"
    assert json.dumps(VERSION).startswith('"2.13')


def test_sparse_tensors(program):
    printed = program(
        """
import io, torch
x = torch.sparse_coo_tensor([[0, 1, 1]], [1.0, 2.0, 3.0], (3,))
print(x.type(), x.layout, x.is_sparse, torch.is_tensor(x), isinstance(x, torch.Tensor))
print(isinstance(x, torch.sparse.FloatTensor), isinstance(x, torch.sparse.DoubleTensor))
print(isinstance(torch.ones(2), torch.sparse.FloatTensor))
print(torch.sparse.FloatTensor(torch.tensor([[0, 2]]), torch.ones(2), torch.Size([4])).to_dense())
print(torch.sparse.mm(torch.eye(2).to_sparse(), torch.ones(2, 1)).tolist())
for weights_only in (True, False):
    for y in (x, x.coalesce()):
        file = io.BytesIO()
        torch.save({"x": y}, file)
        file.seek(0)
        z = torch.load(file, weights_only=weights_only)["x"]
        print(z.is_sparse, z.to_dense().tolist(), z.is_coalesced())
for name in ("sparse_csr_tensor", "sparse.spsolve"):
    try:
        eval(f"torch.{name}")(x)
    except NotImplementedError as error:
        print(name, "sparse_coo_tensor" in str(error) or "to_dense" in str(error))
print(torch.nn.modules.sparse.Embedding, torch.optim.SparseAdam, torch.sparse_coo)
"""
    )
    assert printed == [
        "torch.sparse.FloatTensor torch.sparse_coo True True True",
        "True False",
        "False",
        "tensor([1., 0., 1., 0.])",
        "[[1.0], [1.0]]",
        *["True [1.0, 5.0, 0.0] False", "True [1.0, 5.0, 0.0] True"] * 2,
        "sparse_csr_tensor True",
        "sparse.spsolve True",
        "<class 'torch.nn.modules.sparse.Embedding'> <class 'torch.optim.sparse_adam.SparseAdam'> "
        "torch.sparse_coo",
    ]
