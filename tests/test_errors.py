"""Bad input: an error that says what was expected, raised before anything changes."""

import subprocess
import sys

import pytest

import tapegrad as tg
from tapegrad.core import missing

CASES = {
    "broadcast": (lambda: tg.ones(3) + tg.ones(4), RuntimeError, r"\(3,\) and \(4,\)"),
    "matmul": (lambda: tg.ones(2, 3) @ tg.ones(2, 3), RuntimeError, r"\(2, 3\)"),
    "matmul dtype": (
        lambda: tg.ones(2, 2) @ tg.ones(2, 2, dtype=tg.float64),
        RuntimeError,
        "float64",
    ),
    "reshape": (lambda: tg.ones(6).reshape(4, 2), RuntimeError, "8 elements"),
    "reshape -1": (lambda: tg.ones(6).reshape(-1, -1), RuntimeError, "one -1"),
    "view": (lambda: tg.ones(2, 3).T.view(6), RuntimeError, "contiguous"),
    "permute": (lambda: tg.ones(2, 3).permute(0, 0), RuntimeError, "each of the 2"),
    "expand": (lambda: tg.ones(3).expand(4), RuntimeError, "size 1"),
    "dim": (lambda: tg.ones(2, 3).sum(2), IndexError, "-2 to 1"),
    "dim twice": (lambda: tg.ones(2, 3).sum((0, -2)), RuntimeError, "twice"),
    "index": (lambda: tg.ones(3)[5], IndexError, "size 3"),
    "too many indices": (lambda: tg.ones(3)[0, 0], IndexError, "2 indices"),
    "float index": (lambda: tg.ones(3)[tg.ones(1)], IndexError, "integers or of bool"),
    "index tensor": (lambda: tg.ones(3)[tg.tensor([3])], IndexError, "out of range"),
    "mask": (lambda: tg.ones(3)[tg.tensor([True, False])], IndexError, "mask"),
    "negative step": (lambda: tg.ones(3)[::-1], ValueError, "flip"),
    "gather": (lambda: tg.ones(3).gather(0, tg.tensor([4])), RuntimeError, "out of range"),
    "gather float": (lambda: tg.ones(3).gather(0, tg.ones(1)), RuntimeError, "integer"),
    "cat": (lambda: tg.cat([tg.ones(2, 3), tg.ones(3, 2)]), RuntimeError, r"\(3, 2\)"),
    "cat nothing": (lambda: tg.cat([]), ValueError, "non-empty"),
    "stack": (lambda: tg.stack([tg.ones(2), tg.ones(3)]), RuntimeError, "one shape"),
    "split": (lambda: tg.ones(5).split([2, 2]), RuntimeError, "add up"),
    "unknown keyword": (lambda: tg.ones(3).sum(dimension=0), TypeError, "dimension"),
    "dim and axis": (lambda: tg.ones(3).sum(dim=0, axis=0), TypeError, "both"),
    "unknown keyword in zeros": (lambda: tg.zeros(3, color="red"), TypeError, "color"),
    "list instead of tensor": (lambda: tg.sqrt([1.0]), TypeError, r"tapegrad\.tensor"),
    "string operand": (lambda: tg.ones(3) + "a", TypeError, None),
    "bool of many": (lambda: bool(tg.ones(3)), RuntimeError, "ambiguous"),
    "item of many": (lambda: tg.ones(3).item(), RuntimeError, "one element"),
    "ragged": (lambda: tg.tensor([[1.0], [1.0, 2.0]]), ValueError, "ragged"),
    "dtype": (lambda: tg.zeros(2, dtype="float12"), TypeError, "float32"),
    "complex": (lambda: tg.tensor([1j]) < 1, RuntimeError, "complex"),
    "device": (lambda: tg.zeros(2, device="tpu"), RuntimeError, "cuda"),
    "mean of integers": (lambda: tg.tensor([1, 2]).mean(), RuntimeError, "float"),
    "empty max": (lambda: tg.zeros(0).max(), RuntimeError, "empty"),
    "integer division": (lambda: tg.tensor([1]) // 0, RuntimeError, "zero"),
    "clamp": (lambda: tg.ones(2).clamp(), RuntimeError, "min"),
    "einsum": (lambda: tg.einsum("ij,jk->ik", tg.ones(2, 3), tg.ones(4, 2)), RuntimeError, "'j'"),
    "arange": (lambda: tg.arange(0, 5, -1), RuntimeError, "never arrives"),
    "randint": (lambda: tg.randint(5, 5, (2,)), RuntimeError, "low < high"),
    "topk": (lambda: tg.ones(3).topk(4), RuntimeError, "out of range"),
    "diag": (lambda: tg.ones(1, 1, 1).diag(), RuntimeError, "vector or a matrix"),
    "narrow": (lambda: tg.ones(3).narrow(0, 2, 2), RuntimeError, "does not lie"),
    "numpy of grad": (lambda: tg.ones(1, requires_grad=True).numpy(), RuntimeError, "detach"),
    "where condition": (lambda: tg.where(tg.ones(2), 1.0, 2.0), RuntimeError, "bool"),
    "integer gradients": (
        lambda: tg.zeros(2, dtype=tg.int64, requires_grad=True),
        RuntimeError,
        "floating",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_message_and_kind(name):
    call, kind, message = CASES[name]
    mode = tg.is_grad_enabled()
    with pytest.raises(kind, match=message):
        call()
    assert tg.is_grad_enabled() == mode


def test_no_gpu_says_what_to_install():
    from tapegrad.core.device import cupy

    try:
        cupy()
    except RuntimeError:
        pass
    else:
        pytest.skip("there is a GPU here")
    for call in (
        lambda: tg.zeros(2, device="cuda"),
        lambda: tg.ones(1).cuda(),
        lambda: tg.ones(1).to("cuda:0"),
    ):
        with pytest.raises(RuntimeError, match=r"tapegrad\[cuda\]"):
            call()
    assert not tg.cuda.is_available()


def test_unknown_names():
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = tg.no_such_thing


def test_integer_division_towards_zero_is_exact():
    x, y = tg.tensor([2**62 + 1, -(2**62) - 1, -7, 7]), tg.tensor([3, 3, 2, -2])
    got = tg.div(x, y, rounding_mode="trunc")
    assert got.tolist() == [1537228672809129301, -1537228672809129301, -3, -3]
    with pytest.raises(RuntimeError, match="integer division by zero"):
        tg.div(x, 0, rounding_mode="trunc")


# -- missing names ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "name", "nearest"),
    [
        (tg, "sofmax", "softmax"),
        (tg, "no_gard", "no_grad"),
        (tg.nn, "LayerNrom", "LayerNorm"),
        (tg.nn.functional, "cross_entopy", "cross_entropy"),
        (tg.linalg, "cholesy", "cholesky"),
        (tg.autograd, "Fuction", "Function"),
        (tg.optim, "Adamm", "Adam"),
        (tg.func, "jacrve", "jacrev"),
        (tg.nn, "Relu", "ReLU"),
    ],
)
def test_a_missing_name_answers_with_the_nearest_one(module, name, nearest):
    with pytest.raises(
        AttributeError, match=f"has no attribute '{name}'; did you mean '{nearest}'"
    ):
        getattr(module, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'zzzz'$"):
        _ = module.zzzz
    assert not hasattr(module, "__wrapped__")


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [
        (tg, "Adam", "did you mean 'tapegrad.optim.Adam'"),
        (tg, "mse_loss", "did you mean 'tapegrad.nn.functional.mse_loss'"),
        (tg, "onnx", "programs cannot be exported"),
        (tg.nn, "relu", "did you mean 'tapegrad.nn.functional.relu'"),
        (tg.nn, "DataParallel", "use tapegrad.nn.parallel.DistributedDataParallel"),
        (tg.optim, "StepLR", "did you mean 'tapegrad.optim.lr_scheduler.StepLR'"),
    ],
)
def test_a_missing_name_answers_with_what_to_use_instead(module, name, hint):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'; {hint}"):
        getattr(module, name)


def test_names_with_a_replacement_do_not_exist():
    for name in missing._INSTEAD:
        assert not hasattr(tg, name)


def test_python_adds_no_guess_of_its_own():
    command = [sys.executable, "-c", "import tapegrad; tapegrad.conv_2d"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    assert shown.lower().count("did you mean") == 1


def test_dir_shows_public_names_alone():
    names = dir(tg)
    assert {"Tensor", "nn", "softmax", "compile", "Tape"} <= set(names)
    assert [n for n in names if n.startswith("_")] == []
    assert not {"core", "replay", "insight", "demos", "cli"} & set(names)


LAYER = tg.nn.Linear(2, 2)

WAYS_OUT = {
    "a list in Sequential": (
        lambda: tg.nn.Sequential([LAYER]),
        TypeError,
        r"module '0' must be a Module or None, got list; .*Sequential\(\*layers\)",
    ),
    "a function in ModuleList": (
        lambda: tg.nn.ModuleList([LAYER, tg.nn.functional.relu]),
        TypeError,
        "module '1' must be a Module or None, got function; wrap it in a Module",
    ),
    "a class in Sequential": (
        lambda: tg.nn.Sequential(LAYER, tg.nn.ReLU),
        TypeError,
        r"module '1' must be a Module or None, got the class ReLU; make one with ReLU\(...\)",
    ),
    "calling ModuleList": (
        lambda: tg.nn.ModuleList([LAYER])(tg.ones(2)),
        NotImplementedError,
        "ModuleList holds modules and has no forward; .*or use nn.Sequential",
    ),
    "calling ModuleDict": (
        lambda: tg.nn.ModuleDict({"a": LAYER})(tg.ones(2)),
        NotImplementedError,
        "ModuleDict holds modules and has no forward; call the modules in it$",
    ),
    "a module for an optimizer": (
        lambda: tg.optim.SGD(LAYER, lr=0.1),
        TypeError,
        r"expected an iterable of Tensors, got Linear; use module.parameters\(\)",
    ),
    "a state dict for an optimizer": (
        lambda: tg.optim.SGD(LAYER.state_dict(), lr=0.1),
        TypeError,
        r"is a str, 'weight'; use module.parameters\(\)",
    ),
    "a path as a state dict": (
        lambda: LAYER.load_state_dict("model.pt"),
        TypeError,
        "must be a mapping, got str; load the file first, with tapegrad.load",
    ),
    "a module as a state dict": (
        lambda: LAYER.load_state_dict(tg.nn.Linear(2, 2)),
        TypeError,
        r"must be a mapping, got Linear; use its state_dict\(\)",
    ),
    "two states for a GRU": (
        lambda: tg.nn.GRU(2, 3)(tg.ones(4, 1, 2), (tg.ones(1, 1, 3), tg.ones(1, 1, 3))),
        TypeError,
        "GRU needs hx as one tensor, got tuple",
    ),
    "two states for a GRUCell": (
        lambda: tg.nn.GRUCell(2, 3)(tg.ones(1, 2), (tg.ones(1, 3), tg.ones(1, 3))),
        TypeError,
        "GRUCell: hidden must be a tensor, got tuple",
    ),
    "numbers as states of an LSTM": (
        lambda: tg.nn.LSTM(2, 3)(tg.ones(4, 1, 2), (0, 0)),
        TypeError,
        "LSTM needs tensors in hx, got int",
    ),
    "a kernel in words": (
        lambda: tg.nn.Conv2d(2, 3, "3"),
        TypeError,
        "kernel_size must be an integer or 2 of them, got '3'",
    ),
    "None among numbers": (
        lambda: tg.tensor([1.0, None]),
        TypeError,
        "cannot make a tensor of NoneType",
    ),
    "None as a float": (  # NumPy makes NaN of it
        lambda: tg.tensor([None], dtype=tg.float32),
        TypeError,
        "cannot make a tensor of NoneType",
    ),
    "words": (lambda: tg.tensor("abc"), TypeError, "cannot make a tensor of str"),
    "a number in words": (
        lambda: tg.tensor(["1"], dtype=tg.float32),
        TypeError,
        "cannot make a tensor of str",
    ),
    "dictionaries": (lambda: tg.tensor([{}]), TypeError, "cannot make a tensor of dict"),
}


@pytest.mark.parametrize("name", WAYS_OUT)
def test_a_common_mistake_answers_with_the_way_out(name):
    function, kind, message = WAYS_OUT[name]
    with pytest.raises(kind, match=message):
        function()


def test_a_list_of_modules_stays_as_it_was_if_one_is_refused():
    modules = tg.nn.ModuleList([LAYER])
    with pytest.raises(TypeError):
        modules.extend([LAYER, tg.nn.functional.relu])
    assert len(modules) == 1


def test_groups_take_the_learning_rate_by_both_names():
    """As the constructor does: a rate under the other name would be ignored in silence."""
    parameters = [tg.ones(1, requires_grad=True) for _ in range(2)]
    groups = [{"params": parameters[:1], "learning_rate": 0.5}, {"params": parameters[1:]}]
    optimizer = tg.optim.SGD(groups, lr=0.1)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.1]
    assert all("learning_rate" not in group for group in optimizer.param_groups)
    extra = tg.ones(1, requires_grad=True)
    with pytest.raises(TypeError, match="both lr and learning_rate"):
        optimizer.add_param_group({"params": [extra], "lr": 1.0, "learning_rate": 2.0})
    assert len(optimizer.param_groups) == 2


@pytest.mark.parametrize(
    ("function", "advice"),
    [
        (lambda x: tg.bincount(x), r"bincount\(\) \(use scatter_add\)"),
        (lambda x: tg.unique(x), r"unique\(\) \(call it outside"),
        (lambda x: tg.nn.functional.one_hot(x), r"one_hot without num_classes \(give num_classes"),
        (
            lambda x: tg.nn.utils.rnn.pack_padded_sequence(tg.ones(3, 3), x, enforce_sorted=False),
            r"pack_padded_sequence with lengths in a tensor \(give a list of numbers",
        ),
    ],
)
def test_a_refused_reading_has_one_advice(function, advice):
    """What has its own way out does not also suggest where(), which would not help."""
    with pytest.raises(RuntimeError, match=advice) as caught:
        tg.compile(function, fullgraph=True)(tg.tensor([1, 2, 1]))
    assert "Return the tensor" not in str(caught.value)
    assert "the function is replayed" in str(caught.value)
