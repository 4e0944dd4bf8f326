"""Logs for TensorBoard, read again by its package; without the package, an error that names it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapegrad as tg

PACKAGE = importlib.util.find_spec("tensorboard")
needs_package = pytest.mark.skipif(PACKAGE is None, reason="tensorboard is not installed")


def test_an_error_names_the_package() -> None:
    program = (
        "import sys; sys.modules['tensorboard'] = None; import importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n == 'tensorboard' else find(n, *a)\n"
        "try:\n"
        "    import tapegrad.utils.tensorboard\n"
        "except ImportError as error:\n"
        "    print(error.name, error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout.startswith("tensorboard tapegrad.utils.tensorboard needs"), ran.stderr


def events_of(folder: Path) -> Any:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    sizes = {"tensors": 0, "images": 0, "scalars": 0, "histograms": 0, "audio": 0}
    return reader.EventAccumulator(str(folder), size_guidance=sizes).Reload()


@needs_package
@pytest.mark.filterwarnings("ignore")
def test_everything_is_read_again(tmp_path: Path) -> None:
    from tapegrad.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path / "run") as writer:
        for i in range(3):
            writer.add_scalar("loss", tg.tensor([1.0 / (i + 1)], requires_grad=True), i)
        writer.add_scalar("new", 2.5, 7, new_style=True)
        writer.add_histogram("weights", tg.arange(10.0), 1)
        writer.add_histogram("auto", tg.arange(10.0), 1, bins="auto", max_bins=2)
        writer.add_text("note", "hello", 1)
        writer.add_tensor("whole", tg.arange(6).reshape(2, 3), 1)
        writer.add_image("picture", tg.rand(3, 4, 5), 1)
        writer.add_images("pictures", tg.rand(3, 1, 4, 5), 1)
        writer.add_image_with_boxes("boxes", tg.rand(3, 9, 9), tg.tensor([[1, 1, 5, 5]]), 1)
        writer.add_video("video", tg.rand(1, 2, 3, 4, 4), 1)
        writer.add_audio("sound", tg.rand(1, 50) * 2 - 1, 1)
        writer.add_pr_curve("curve", tg.tensor([0, 1, 1]), tg.tensor([0.1, 0.8, 0.4]), 1)
        writer.add_mesh("mesh", tg.rand(1, 4, 3), faces=tg.tensor([[[0, 1, 2]]]), global_step=1)
        writer.add_custom_scalars_multilinechart(["loss", "new"])
        writer.add_scalars("both", {"a": 1.0, "b": 2.0}, 1)
        writer.add_hparams({"lr": 0.1, "name": "x", "deep": True}, {"acc": 0.5}, run_name="h")
        writer.add_embedding(tg.rand(4, 3), ["a", "b", "c", "d"], tg.rand(4, 3, 2, 2), tag="e/f")
        with pytest.raises(NotImplementedError, match="Tape"):
            writer.add_graph(tg.nn.Linear(1, 1))
        with pytest.raises(AssertionError, match="no dimensions"):
            writer.add_scalar("two", tg.ones(2))
    events = events_of(tmp_path / "run")
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [
        (0, 1.0), (1, 0.5), (2, pytest.approx(1 / 3)),
    ]  # fmt: skip
    tags = events.Tags()
    assert {"weights", "auto"} <= set(tags["histograms"])
    assert {"picture", "pictures", "boxes", "video"} <= set(tags["images"])
    assert tags["audio"] == ["sound"]
    assert {"note/text_summary", "whole", "curve", "new"} <= set(tags["tensors"])
    histogram = events.Histograms("weights")[0].histogram_value
    assert (histogram.num, histogram.sum, histogram.min, histogram.max) == (10, 45.0, 0.0, 9.0)
    assert sum(histogram.bucket) == 10
    picture = events.Images("picture")[0]
    assert (picture.width, picture.height) == (5, 4)
    assert events_of(tmp_path / "run" / "both_a").Scalars("both")[0].value == 1.0
    assert events_of(tmp_path / "run" / "h").Scalars("acc")[0].value == 0.5
    folder = tmp_path / "run" / "00000" / "e%2ff"
    assert np.loadtxt(folder / "tensors.tsv").shape == (4, 3)
    assert (tmp_path / "run" / "projector_config.pbtxt").exists()


@needs_package
def test_a_closed_writer_opens_again(tmp_path: Path) -> None:
    from tapegrad.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(tmp_path), filename_suffix=".x")
    writer.add_scalar("a", 1.0, 0)
    writer.close()
    writer.close()
    writer.add_scalar("a", 2.0, 1)
    writer.flush()
    writer.close()
    assert writer.get_logdir() == str(tmp_path)
    assert all(p.name.endswith(".x") for p in tmp_path.iterdir())
