"""The rules of the code base: which part may use which, one place for an operation."""

import ast
from pathlib import Path

import pytest

import tapegrad
from tapegrad.primitive import PRIMITIVES

PACKAGE = Path(tapegrad.__file__).parent

#: layers from the bottom: a module may import from its own layer and those below, never above
LAYERS = [
    {"allocator", "device", "dtypes", "failures", "locks", "source", "state", "tree", "xp"},
    {"mutation", "tape"},
    {"methods", "tensor"},
    {"primitive", "written"},
    {"casting", "closeness", "fast", "inplace", "random", "gradients", "strided"},
    {"chain", "copying", "walk", "rules"},
    {"backward"},
    {"ops"},
    {"anomaly", "function", "recompute", "func", "linalg"},
    {"autograd", "data", "debug", "testing", "amp", "cpu", "cuda", "utils", "replay", "insight"},
    {"typed", "backends"},
    {"nn"},
    {"optim"},
    {"saving"},
    {"backward_functions", "dialects", "demos", "cli", "__main__"},
]


def top_level_imports(path):
    """Modules of the package imported at the top of a file (not inside functions)."""
    tree = ast.parse(path.read_text())
    package = path.relative_to(PACKAGE).parts[:-1]
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            if node.module:
                yield (*base, *node.module.split("."))[0]
            elif base:
                yield base[0]
            else:
                for alias in node.names:
                    yield alias.name


def layer_of(name):
    for i, layer in enumerate(LAYERS):
        if name in layer:
            return i
    raise AssertionError(f"{name} has no layer: enter it in LAYERS")


FILES = [p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_dependencies_point_one_way(path):
    name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for used in top_level_imports(path):
        if (PACKAGE / used).exists() or (PACKAGE / f"{used}.py").exists():
            assert layer_of(used) <= layer_of(name), f"{name} imports {used}, which is above it"


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


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_say_what_they_are_and_stay_short(path):
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), "a file opens with what it is for"
    assert text.count("\n") <= 700, "split a file of more than 600 lines"


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
