"""Settings for all tests: Hypothesis profiles, thinned runs, a GPU or a stand-in for one."""

from __future__ import annotations

import os
import signal
import sys
import zlib
from typing import Any

import pytest
import thinning
from hypothesis import settings

# A process that a shell started in the background ignores interrupts, and so would the processes
# that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: no messages about slow compilations: they depend on timing
os.environ.setdefault("TAPEGRAD_QUIET", "1")

settings.register_profile("default", deadline=None, max_examples=60, print_blob=True)
settings.register_profile("ci", deadline=None, max_examples=60, derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "default")


# -- thinned runs ------------------------------------------------------------------------------

#: stash keys of the seed and of the number of left out cases
SEED = pytest.StashKey[str]()
LEFT_OUT = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--thin",
        nargs="?",
        const="",
        metavar="SEED",
        help="run some cases of each sweep, chosen by the commit or by SEED (tests/thinning.py)",
    )


def pytest_configure(config: pytest.Config) -> None:
    asked = config.getoption("--thin")
    # A worker of pytest-xdist gets the seed from the process that started it.
    given = getattr(config, "workerinput", {}).get("seed")
    seed = None if asked is None else given or asked or thinning.commit()
    thinning.set_seed(seed)
    if seed is not None:
        config.stash[SEED] = seed
        config.stash[LEFT_OUT] = 0


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["seed"] = node.config.stash.get(SEED, None)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    left_out = getattr(node, "workeroutput", {}).get("left_out")
    if left_out is not None:
        node.config.stash[LEFT_OUT] = left_out  # the same in every worker


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, None)


def pytest_report_header(config: pytest.Config) -> str | None:
    seed = config.stash.get(SEED, None)
    return None if seed is None else f"sweeps are thinned; again with the same cases: --thin={seed}"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if SEED in config.stash:
        terminalreporter.write_line(
            f"thinned with --thin={config.stash[SEED]}: {config.stash[LEFT_OUT]} cases left out, "
            "and some samples of others; without --thin all run"
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = thinning.thin(items)
    if left_out:
        config.stash[LEFT_OUT] = len(left_out)
        config.hook.pytest_deselected(items=left_out)
    marked = [item for item in items if item.get_closest_marker("cuda")]
    if marked and not _has_gpu():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs CuPy and an NVIDIA GPU"))


def _has_gpu() -> bool:
    from tapegrad.core.device import cupy

    try:
        cupy()
    except RuntimeError:
        return False
    return True


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seed the random generator from the test's name, so that a failure is reproducible."""
    import tapegrad

    tapegrad.manual_seed(zlib.crc32(item.nodeid.encode()))


@pytest.fixture(params=["cuda", "cupy"])
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU, or a stand-in if there is none; with tapegrad's own kernels, or CuPy's."""
    from tapegrad.core import acceleration
    from tapegrad.replay.cuda.target import CUDA
    from tapegrad.replay.use.eager import Native

    if not _has_gpu():
        # Imported here: where this file is used alone, these modules are absent.
        import stand_in_cupy
        import stand_in_grids

        for name, module in stand_in_cupy.modules().items():
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(CUDA, "device", lambda target, index: stand_in_grids.DEVICE)
        monkeypatch.setattr(CUDA, "missing", lambda target: None)
    if request.param == "cupy":
        monkeypatch.setattr(CUDA, "missing", lambda target: "not wanted in this test")
    # A new accelerator without forms: those of the last test may belong to another GPU.
    monkeypatch.setattr(acceleration, "_accelerator", Native())
