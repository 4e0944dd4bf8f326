"""The rules of the code base: which part may use which, one place for an operation."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tapegrad
from tapegrad.core.primitive import PRIMITIVES

PACKAGE = Path(tapegrad.__file__).parent

#: rooms from the bottom: folders, the rooms of `replay`, and modules that stand alone. Code imports
#: from its own room and those before it, at the top of a file or inside a function.
ROOMS = [
    *(
        "core",
        "futures",
        "multiprocessing",
        "random",
        "quasirandom",
        "autograd",
        "transforms",
        "storage",
        "ops",
        "func",
        "linalg",
        "fft",
        "masked",
        "signal",
        "special",
        "sparse",
        "array_api",
    ),
    "foreach",
    *("replay.ir", "replay.passes", "replay.guards", "replay.trace", "replay.native"),
    *("replay.cpu", "replay.cuda"),
    *(
        "replay.reference",
        "replay.use",
        "replay",
        "distributed",
        "cpu",
        "cuda",
        "insight",
        "debug",
        "testing",
        "data",
        "amp",
        "backends",
        "typed",
        "_vmap_internals",
        "__future__",
    ),
    *(
        "nn",
        "optim",
        "saving",
        "serialization",
        "parallel",
        "utils",
        "backward_functions",
        "dialects",
    ),
    "overrides",
    *("__init__", "distributions", "compat", "demos", "cli", "__main__"),
]
#: imports that point upwards: (file, room), with the reason. The list may only become shorter.
UPWARDS = {
    ("autograd/__init__", "testing"): "names of PyTorch that other rooms define",
    ("autograd/__init__", "dialects"): "names of the documents that other rooms define",
    ("autograd/__init__", "optim"): "names of the documents that other rooms define",
    ("autograd/api", "transforms"): "`is_grads_batched` is `vmap`",
    ("autograd/forward_ad", "transforms"): "a path of PyTorch's for what `transforms` does",
    ("autograd/functional", "func"): "a path of PyTorch's for what `func` does",
    ("autograd/functional", "ops"): "a path of PyTorch's for what `func` does",
    ("autograd/gradients", "nn"): "`Gradients.clip` is `nn.utils` on a mapping",
    ("core/acceleration", "replay.use"): "large eager operations run as native code",
    ("core/tape", "autograd"): "`Tape.backward`",
    ("core/tape", "insight"): "printing and measuring a tape",
    ("core/tensor", "array_api"): "`Tensor.__array_namespace__`",
    ("core/tensor", "autograd"): "`Tensor.backward`",
    ("core/tensor", "insight"): "printing a tensor",
    ("cpu/amp", "amp"): "an old path of PyTorch's",
    ("cuda/amp", "amp"): "an old path of PyTorch's",
    (
        "distributed/algorithms/ddp_comm_hooks/default_hooks",
        "parallel",
    ): "a path of PyTorch's",
    (
        "distributed/algorithms/ddp_comm_hooks/powerSGD_hook",
        "parallel",
    ): "a path of PyTorch's",
    ("distributed/pipelining/__init__", "parallel"): "a path of PyTorch's",
    ("distributed/tensor/__init__", "parallel"): "a path of PyTorch's",
    ("distributed/tensor/parallel/__init__", "parallel"): "a path of PyTorch's",
    ("distributed/__init__", "parallel"): "`GradBucket`, a name of PyTorch's",
    ("distributed/algorithms/join", "parallel"): "a path of PyTorch's",
    ("distributed/checkpoint/__init__", "saving"): "a path of PyTorch's",
    ("distributed/checkpoint/state_dict", "parallel"): "a path of PyTorch's",
    ("distributed/checkpoint/stateful", "saving"): "a path of PyTorch's",
    ("distributed/fsdp", "parallel"): "a path of PyTorch's",
    ("distributed/optim", "parallel"): "a path of PyTorch's",
    ("func/calling", "nn"): "`functional_call` of a module",
    ("insight/installation", "__init__"): "the version",
    ("nn/__init__", "dialects"): "names of the documents that other rooms define",
    ("nn/__init__", "parallel"): "a path of PyTorch's",
    ("nn/parallel/__init__", "parallel"): "a path of PyTorch's",
    ("nn/__init__", "optim"): "names of the documents that other rooms define",
    ("replay/cpu/jit", "__init__"): "the version",
    ("replay/guards/layers", "nn"): "which calls are those of modules",
}


def room_of(parts):
    """The room of a module, given by the parts of its path within the package."""
    if parts[:1] == ("replay",) and (PACKAGE / "replay" / "".join(parts[1:2])).is_dir():
        return ".".join(parts[:2])
    return parts[0] if parts else "__init__"


def is_module(parts):
    path = PACKAGE.joinpath(*parts)
    return path.is_dir() or path.with_suffix(".py").exists()


def imported(path):
    """The modules of the package that a file imports, anywhere in it, as parts of their paths.

    Imports for type checkers alone do not count; those by a string do.
    """
    package = path.relative_to(PACKAGE).parts[:-1]
    text = path.read_text()
    loads_by_name = "import_module(" in text
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            module = (*base, *(node.module.split(".") if node.module else ()))
            for alias in node.names:
                yield (*module, alias.name) if is_module((*module, alias.name)) else module
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = (
                [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            )
            assert not any(n.split(".")[0] == "tapegrad" for n in names), "an absolute import"
        elif loads_by_name and isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = re.fullmatch(r"(tapegrad)?(\.+)(\w+(?:\.\w+)*)", node.value)
            if found is not None:
                absolute, dots, rest = found.groups()
                base = () if absolute else package[: len(package) - len(dots) + 1]
                module = (*base, *rest.split("."))
                if is_module(module):
                    yield module


FILES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def graph():
    """Which rooms import from which, as pairs, with the files that do."""
    edges = {}
    for path in FILES:
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        room = room_of(parts[:-1] if parts[-1] == "__init__" else parts)
        for module in imported(path):
            if room_of(module) != room:
                edges.setdefault((room, room_of(module)), set()).add("/".join(parts))
    return edges


def test_rooms_import_from_rooms_below():
    upwards = set()
    for (room, used), files in sorted(graph().items()):
        is_up = ROOMS.index(used) > ROOMS.index(room)
        print(f"{room} -> {used}{' (up)' if is_up else ''}: {len(files)} files")
        upwards |= {(file, used) for file in files if is_up}
    assert upwards - UPWARDS.keys() == set(), "imports that point upwards"
    assert UPWARDS.keys() - upwards == set(), "exceptions that are none any more: remove them"


@pytest.mark.parametrize("path", sorted((PACKAGE / "replay").rglob("*.py")), ids=lambda p: p.name)
def test_replay_never_names_an_operation(path):
    """Passes ask for fields of Primitive: no operation is imported or compared by name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert "ops" not in (node.module or "").split("."), "replay imports an operation"
            assert "PRIMITIVES" not in {alias.name for alias in node.names}
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            named = [s for s in sides if isinstance(s, ast.Attribute) and s.attr == "name"]
            strings = {s.value for s in sides if isinstance(s, ast.Constant)}
            assert not (named and strings & set(PRIMITIVES)), "replay asks for an operation's name"


#: what an import statement may name beside the standard library and the package itself: the
#: dependencies, the extras whose types the checker is told to skip, and what it brings along
IMPORTED_BY_NAME = {
    *("numpy", "llvmlite", "scipy", "safetensors", "ml_dtypes", "rich"),
    *("cuda", "cupy", "cupyx", "mpi4py", "typing_extensions"),
}


def test_imports_name_only_what_is_declared():
    """PyTorch's name among them would type-check only where PyTorch happens to be installed."""
    found = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            else:
                continue
            for name in names:
                found.setdefault(name.split(".")[0], set()).add(str(path.relative_to(PACKAGE)))
    unknown = found.keys() - sys.stdlib_module_names - IMPORTED_BY_NAME
    assert {name: found[name] for name in unknown} == {}, "load it with import_module"


#: files that change the modes of a thread: the contexts, and what the contexts stand for
CHANGE_MODES = {
    *("core/modes", "core/tape", "core/casting", "autograd/anomaly", "autograd/checkpointing"),
}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_modes_are_entered_and_left_in_one_way(path):
    name = str(path.relative_to(PACKAGE).with_suffix(""))
    changed = re.findall(
        r"STATE\.(?:mode|tapes|saved_hooks)\b[^=\n]*(?<![=!<>])=(?!=)", path.read_text()
    )
    assert bool(changed) == (name in CHANGE_MODES), "use the contexts of core/modes.py"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_one_file_knows_the_letters_of_numpys_kinds(path):
    if path.name != "numeric.py":
        found = re.findall(
            r"dtype\.kind (?:not )?(?:in|==|!=) [\"'][a-zA-Z]*[\"']", path.read_text()
        )
        assert [text for text in found if "SUO" not in text] == [], "ask core/numeric.py"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_say_what_they_are_and_stay_short(path):
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), "a file opens with what it is for"
    assert text.count("\n") <= 700, "split a file of more than 600 lines"


#: class names that several files define, with the reason. The list may only become shorter.
SEVERAL_CLASSES = {
    "Identity": "PyTorch has a layer and a method of pruning",
    "Partial": "PyTorch's layout of a tensor, and a part of a sum in a kernel",
    "Store": "PyTorch's keys and values of ranks, and an instruction of a program",
    "GradScaler": "PyTorch has it in `amp`, `cpu.amp` and `cuda.amp`",
    "autocast": "PyTorch has it in `amp`, `cpu.amp` and `cuda.amp`",
}


def test_a_class_name_exists_once():
    files = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                files.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    several = {name: found for name, found in files.items() if len(found) > 1}
    unexpected = {name: several[name] for name in several.keys() - SEVERAL_CLASSES.keys()}
    assert unexpected == {}, "one class name for several things"
    assert SEVERAL_CLASSES.keys() - several.keys() == set(), "exceptions that are none any more"


def test_stubs_are_current():
    from tools.stubs import stubs

    for path, text in stubs().items():
        assert path.read_text() == text, f"run `python -m tools.stubs`: {path.name} is out of date"


def test_every_public_name_has_a_docstring():
    from tools.reference import missing

    assert missing() == []


def test_reference_is_current():
    from tools.reference import FOLDER, pages

    texts = pages()
    assert set(FOLDER.glob("*.md")) == set(texts), "run `python -m tools.reference`"
    for path, text in texts.items():
        assert path.read_text() == text, f"run `python -m tools.reference`: {path.name} is old"


ENTERED = """
import json, tapegrad
from tapegrad.ops import late, table
found = {}
for file in late.LATE:
    before = dict(table.TABLE)
    late.load(file)
    new = [entry for name, entry in table.TABLE.items() if name not in before]
    names = [n for e in new if e.module == "" for n in (e.name, *e.aliases)]
    found[file] = sorted(names), sorted(m for e in new for m in e.methods)
print(json.dumps(found))
"""


def test_operations_that_are_imported_late_are_listed():
    """What each late file enters in the table is what `LATE` says, by name."""
    from tapegrad.ops.late import LATE

    run = subprocess.run([sys.executable, "-c", ENTERED], capture_output=True, check=True)
    found = json.loads(run.stdout)
    for file, names in LATE.items():
        both, functions, methods = (set(text.split()) for text in names)
        assert set(found[file][0]) == both | functions, file
        assert set(found[file][1]) == both | methods, file
