"""SummaryWriter: logs of a run in a folder that TensorBoard reads.

Comes in: tags and values. Goes out: event files, which the `tensorboard` package writes in a thread
of its own. `summary.py` makes the messages.
"""

from __future__ import annotations

import os
import socket
import time
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from . import summary as messages
from .summary import as_array, proto


class FileWriter:
    """Writes messages to an event file in a folder."""

    def __init__(
        self, log_dir: Any, max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = ""
    ) -> None:
        files = import_module("tensorboard.summary.writer.event_file_writer")
        self.event_writer = files.EventFileWriter(
            str(log_dir), max_queue, flush_secs, filename_suffix
        )

    def get_logdir(self) -> Any:
        """The folder of the event file."""
        return self.event_writer.get_logdir()

    def add_event(self, event: Any, step: Any = None, walltime: float | None = None) -> None:
        """Write an event."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(
        self, summary: Any, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Write a summary."""
        self.add_event(proto("event", "Event")(summary=summary), global_step, walltime)

    def flush(self) -> None:
        """Write all queued events."""
        self.event_writer.flush()

    def close(self) -> None:
        """Write all queued events, and close the file."""
        self.event_writer.close()

    def reopen(self) -> None:
        """Reopen the file after `close`."""
        self.event_writer.reopen()


def _default_bins() -> list[float]:
    """Bin limits of histograms: 0, and 1e-12 times powers of 1.1 on both sides of it."""
    limits: list[float] = []
    v = 1e-12
    while v < 1e20:
        limits.append(v)
        v *= 1.1
    return [-x for x in reversed(limits)] + [0.0] + limits


class SummaryWriter:
    """Logs values for TensorBoard: `writer.add_scalar("loss", loss, step)`.

    Without `log_dir` the logs are in `runs/`, in a folder named after the time and the host.
    """

    def __init__(
        self,
        log_dir: Any = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            now = datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = log_dir
        self.purge_step = purge_step
        self.max_queue = max_queue
        self.flush_secs = flush_secs
        self.filename_suffix = filename_suffix
        self.file_writer: Any = None
        self.all_writers: Any = None
        self._projector: Any = None
        self.default_bins = _default_bins()
        self._get_file_writer()

    def _new_writer(self, folder: Any) -> FileWriter:
        return FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)

    def _get_file_writer(self) -> Any:
        if self.file_writer is None:
            self.file_writer = self._new_writer(self.log_dir)
            self.all_writers = {self.file_writer.get_logdir(): self.file_writer}
            if self.purge_step is not None:  # values logged for later steps are from a lost run
                event, session = proto("event", "Event"), proto("event", "SessionLog")
                step = self.purge_step
                self.file_writer.add_event(event(step=step, file_version="brain.Event:2"))
                start = session(status=session.START)
                self.file_writer.add_event(event(step=step, session_log=start))
                self.purge_step = None
        return self.file_writer

    def _add(self, summary: Any, step: Any = None, walltime: float | None = None) -> None:
        self._get_file_writer().add_summary(summary, step, walltime)

    def get_logdir(self) -> Any:
        """The folder of the logs."""
        return self.log_dir

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: Any = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """Log a number."""
        summary = messages.scalar(tag, scalar_value, new_style, double_precision)
        self._add(summary, global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: dict[str, Any],
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Log several numbers for one chart, each in a folder of its own."""
        walltime = time.time() if walltime is None else walltime
        folder = self._get_file_writer().get_logdir()
        for tag, value in tag_scalar_dict.items():
            path = f"{folder}/{main_tag.replace('/', '_')}_{tag}"
            if path not in self.all_writers:
                self.all_writers[path] = self._new_writer(path)
            self.all_writers[path].add_summary(
                messages.scalar(main_tag, value), global_step, walltime
            )

    def add_tensor(
        self, tag: str, tensor: Any, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Log all values of a tensor."""
        self._add(messages.tensor_summary(tag, tensor), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: Any = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Log a histogram of values."""
        limits = self.default_bins if isinstance(bins, str) and bins == "tensorflow" else bins
        self._add(messages.histogram(tag, values, limits, max_bins), global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: float,
        max: float,
        num: int,
        sum: float,
        sum_squares: float,
        bucket_limits: Any,
        bucket_counts: Any,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Log a histogram from its counts."""
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError(
                f"bucket_limits and bucket_counts must be equally long, got {len(bucket_limits)} "
                f"and {len(bucket_counts)}"
            )
        summary = messages.histogram_raw(
            tag,
            min=min,
            max=max,
            num=num,
            sum=sum,
            sum_squares=sum_squares,
            bucket_limit=as_array(bucket_limits).tolist(),
            bucket=as_array(bucket_counts).tolist(),
        )
        self._add(summary, global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Log an image: uint8 values, or floats from 0 to 1."""
        self._add(messages.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Log several images as a grid."""
        self._add(messages.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_image_with_boxes(
        self,
        tag: str,
        img_tensor: Any,
        box_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        rescale: float = 1,
        dataformats: str = "CHW",
        labels: Any = None,
    ) -> None:
        """Log an image with boxes (left, top, right, bottom)."""
        names = [labels] if isinstance(labels, str) else labels
        if names is not None and len(names) != len(box_tensor):
            names = None
        summary = messages.image(tag, img_tensor, dataformats, rescale, box_tensor, names)
        self._add(summary, global_step, walltime)

    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: Any = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """Log a figure of matplotlib, or a list of figures."""
        figures = figure if isinstance(figure, list) else [figure]
        drawn = []
        for one in figures:
            canvas = import_module("matplotlib.backends.backend_agg").FigureCanvasAgg(one)
            canvas.draw()
            drawn.append(np.asarray(canvas.buffer_rgba())[:, :, :3].transpose(2, 0, 1))
            if close:
                import_module("matplotlib.pyplot").close(one)
        if isinstance(figure, list):
            self.add_images(tag, np.stack(drawn), global_step, walltime)
        else:
            self.add_image(tag, drawn[0], global_step, walltime)

    def add_video(
        self,
        tag: str,
        vid_tensor: Any,
        global_step: Any = None,
        fps: float = 4,
        walltime: float | None = None,
    ) -> None:
        """Log videos of shape (N, T, C, H, W)."""
        self._add(messages.video(tag, vid_tensor, fps), global_step, walltime)

    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: Any = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """Log audio: amplitudes between -1 and 1."""
        self._add(messages.audio(tag, snd_tensor, sample_rate), global_step, walltime)

    def add_text(
        self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Log a text."""
        self._add(messages.text(tag, text_string), global_step, walltime)

    def add_graph(
        self,
        model: Any,
        input_to_model: Any = None,
        verbose: bool = False,
        use_strict_trace: bool = True,
    ) -> None:
        """Raises: a model has no graph other than what a run of it records."""
        raise NotImplementedError(
            "add_graph draws a trace of torch.jit, which does not exist in tapegrad; print a "
            "tapegrad.Tape of a call of the model, or log str(model) with add_text"
        )

    def add_onnx_graph(self, prototxt: Any) -> None:
        """Raises: tapegrad does not read ONNX files."""
        raise NotImplementedError("add_onnx_graph needs ONNX, which tapegrad does not read")

    def add_embedding(
        self,
        mat: Any,
        metadata: Any = None,
        label_img: Any = None,
        global_step: Any = None,
        tag: str = "default",
        metadata_header: Any = None,
    ) -> None:
        """Log vectors for the projector, optionally with labels and images."""
        points = as_array(mat)
        assert points.ndim == 2, "mat should be 2D: a row is a point"
        encoded = tag.replace("%", "%25").replace("/", "%2f").replace("\\", "%5c")
        inside = f"{str(0 if global_step is None else global_step).zfill(5)}/{encoded}"
        folder = Path(self._get_file_writer().get_logdir(), inside)
        folder.mkdir(parents=True, exist_ok=True)
        projector = import_module("tensorboard.plugins.projector.projector_config_pb2")
        info = projector.EmbeddingInfo(
            tensor_name=f"{tag}:{str(0 if global_step is None else global_step).zfill(5)}",
            tensor_path=f"{inside}/tensors.tsv",
        )
        rows = ["\t".join(map(str, row)) for row in points.tolist()]
        (folder / "tensors.tsv").write_text("\n".join(rows) + "\n")
        if metadata is not None:
            assert len(metadata) == len(points), (
                f"metadata needs an entry for each of the {len(points)} points, got {len(metadata)}"
            )
            lines = [str(x) for x in metadata]
            if metadata_header:
                heads = ["\t".join(metadata_header)]
                lines = heads + ["\t".join(map(str, row)) for row in metadata]
            (folder / "metadata.tsv").write_text("\n".join(lines) + "\n")
            info.metadata_path = f"{inside}/metadata.tsv"
        if label_img is not None:
            assert len(label_img) == len(points), (
                f"label_img needs an image for each of the {len(points)} points, got "
                f"{len(label_img)}"
            )
            self._save_sprite(label_img, folder)
            info.sprite.image_path = f"{inside}/sprite.png"
            info.sprite.single_image_dim.extend([label_img.shape[3], label_img.shape[2]])
        if self._projector is None:
            self._projector = projector.ProjectorConfig()
        self._projector.embeddings.extend([info])
        written = import_module("google.protobuf.text_format").MessageToString(self._projector)
        Path(self._get_file_writer().get_logdir(), "projector_config.pbtxt").write_text(written)

    def _save_sprite(self, images: Any, folder: Path) -> None:
        """Save the images of all points as one square image."""
        pixels = as_array(images)
        side = int(np.ceil(len(pixels) ** 0.5))
        blank = np.zeros((side * side - len(pixels), *pixels.shape[1:]), pixels.dtype)
        every = np.concatenate([pixels, blank])
        rows = [np.concatenate(list(every[i * side : (i + 1) * side]), 2) for i in range(side)]
        square = messages.as_picture(np.concatenate(rows, 1), "CHW")
        import_module("PIL.Image").fromarray(square).save(folder / "sprite.png")

    def add_pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        global_step: Any = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Log precision and recall of predictions from 0 to 1."""
        summary = messages.pr_curve(tag, labels, predictions, num_thresholds, weights)
        self._add(summary, global_step, walltime)

    def add_pr_curve_raw(
        self,
        tag: str,
        true_positive_counts: Any,
        false_positive_counts: Any,
        true_negative_counts: Any,
        false_negative_counts: Any,
        precision: Any,
        recall: Any,
        global_step: Any = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Log a precision-recall curve from its counts."""
        positives = true_positive_counts, false_positive_counts
        negatives = true_negative_counts, false_negative_counts
        rows = (*positives, *negatives, precision, recall)
        summary = messages.pr_curve_raw(tag, rows, num_thresholds)
        self._add(summary, global_step, walltime)

    def add_custom_scalars(self, layout: dict[str, dict[str, Any]]) -> None:
        """Log a layout of charts: {category: {title: ["Multiline", tags]}}."""
        self._add(messages.custom_scalars(layout))

    def add_custom_scalars_multilinechart(
        self, tags: list[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Show several scalars in one chart."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(
        self, tags: list[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Show a scalar with its lower and upper limit in one chart."""
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_mesh(
        self,
        tag: str,
        vertices: Any,
        colors: Any = None,
        faces: Any = None,
        config_dict: Any = None,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Log a 3D mesh: vertices, their colors, and triangular faces."""
        summary = messages.mesh(tag, vertices, colors, faces, config_dict)
        self._add(summary, global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: dict[str, Any],
        metric_dict: dict[str, Any],
        hparam_domain_discrete: Any = None,
        run_name: str | None = None,
        global_step: Any = None,
    ) -> None:
        """Log the hyperparameters of a run, and metrics to compare runs by."""
        if type(hparam_dict) is not dict or type(metric_dict) is not dict:
            raise TypeError("hparam_dict and metric_dict must be dicts")
        made = messages.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        name = run_name or str(time.time())
        folder = os.path.join(self._get_file_writer().get_logdir(), name)
        with SummaryWriter(log_dir=folder) as writer:
            for summary in made:
                writer._add(summary, global_step)
            for tag, value in metric_dict.items():
                writer.add_scalar(tag, value, global_step)

    def flush(self) -> None:
        """Write all queued events."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        """Write all queued events, and close the files; the next value opens new ones."""
        for writer in (self.all_writers or {}).values():
            writer.flush()
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
