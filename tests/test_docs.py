"""Every Python snippet in README.md and docs/ runs, and every docstring example."""

import doctest
import importlib
import inspect
import pkgutil
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

import tapegrad
from tapegrad.ops import TABLE

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [*PAGES, *sorted((ROOT / "docs" / "reference").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def names_of_modules():
    names = ["tapegrad"]
    for module in pkgutil.walk_packages(tapegrad.__path__, "tapegrad."):
        names.append(module.name)
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_snippets_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    scope: dict[str, object] = {"__name__": "__snippet__"}
    for match in BLOCK.finditer(text):
        line = text[: match.start()].count("\n") + 2
        source = "\n" * (line - 1) + match.group(1)
        exec(compile(source, str(page), "exec"), scope)


def test_there_is_something_to_run():
    assert BLOCK.search((ROOT / "README.md").read_text())


#: modules whose examples need an extra
EXTRAS = {"tapegrad.utils.tensorboard": "tensorboard"}


@pytest.mark.parametrize("name", names_of_modules())
def test_docstring_examples(name):
    if name in EXTRAS and find_spec(EXTRAS[name]) is None:
        pytest.skip(f"needs the package {EXTRAS[name]}")
    module = importlib.import_module(name)
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL | doctest.NORMALIZE_WHITESPACE
    result = doctest.testmod(module, optionflags=flags)
    assert result.failed == 0


@pytest.mark.parametrize("name", sorted(TABLE))
def test_operations_have_examples_that_run(name):
    text = inspect.getdoc(TABLE[name].function) or ""
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    assert test.examples, "show a call of the operation and its result"
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test)
    assert result.failed == 0


@pytest.mark.parametrize("page", LINKED, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    prose = re.sub(r"`[^`\n]*`", "", page.read_text())
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
