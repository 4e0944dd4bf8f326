"""Summaries: what a tag shows in TensorBoard, as messages of the `tensorboard` package.

Comes in: a tag and values (tensors, arrays, numbers). Goes out: a `Summary` message. Called by
`writer.py`, which writes the messages to files.
"""

from __future__ import annotations

import io
import json
import wave
from importlib import import_module
from typing import Any

import numpy as np

from ...core.device import CPU, to_device
from ...core.tensor import Tensor


def proto(module: str, name: str) -> Any:
    """A class of messages of TensorBoard."""
    return getattr(import_module(f"tensorboard.compat.proto.{module}_pb2"), name)


def as_array(x: Any) -> Any:
    """A tensor, an array or a number as a NumPy array."""
    if isinstance(x, Tensor):
        array = np.asarray(to_device(x.detach()._array, CPU))
        return array if array.dtype.isbuiltin else array.astype(np.float32)
    array = np.asarray(x)
    if array.dtype.kind in "SUO":
        raise NotImplementedError(f"Got {type(x)}, but expected numpy array or torch tensor.")
    return np.atleast_1d(array)


def _summary(tag: str, plugin: str | None = None, content: bytes = b"", **value: Any) -> Any:
    """A message with one value, for a plugin of TensorBoard if one is given."""
    kind = proto("summary", "Summary")
    if plugin is not None:
        metadata = proto("summary", "SummaryMetadata")
        about = metadata.PluginData(plugin_name=plugin, content=content)
        value["metadata"] = metadata(plugin_data=about)
    return kind(value=[kind.Value(tag=tag, **value)])


def _tensor(dtype: str, field: str, values: list[Any], shape: tuple[int, ...]) -> Any:
    dims = proto("tensor_shape", "TensorShapeProto")
    sizes = dims(dim=[dims.Dim(size=size) for size in shape])
    return proto("tensor", "TensorProto")(**{"dtype": dtype, "tensor_shape": sizes, field: values})


def scalar(tag: str, value: Any, new_style: bool = False, double_precision: bool = False) -> Any:
    """A number."""
    array = as_array(value).squeeze()
    assert array.ndim == 0, (
        f"a scalar is a tensor of no dimensions, got {array.size} elements in {array.ndim} "
        "dimensions"
    )
    number = float(array)
    if not new_style:
        return _summary(tag, simple_value=number)
    dtype, field = ("DT_DOUBLE", "double_val") if double_precision else ("DT_FLOAT", "float_val")
    return _summary(tag, "scalars", tensor=_tensor(dtype, field, [number], ()))


#: by dtype: TensorBoard's name, and the field of the message that holds the values
_TENSORS = {
    "float16": ("DT_HALF", "half_val"),
    "bfloat16": ("DT_BFLOAT16", "half_val"),
    "float32": ("DT_FLOAT", "float_val"),
    "float64": ("DT_DOUBLE", "double_val"),
    "int8": ("DT_INT8", "int_val"),
    "uint8": ("DT_UINT8", "int_val"),
    "int16": ("DT_INT16", "int_val"),
    "int32": ("DT_INT32", "int_val"),
    "int64": ("DT_INT64", "int64_val"),
    "bool": ("DT_BOOL", "bool_val"),
}


def tensor_summary(tag: str, tensor: Tensor) -> Any:
    """All values of a tensor."""
    if tensor.dtype.name not in _TENSORS:
        raise ValueError(f"{tag} has unsupported tensor dtype {tensor.dtype}")
    dtype, field = _TENSORS[tensor.dtype.name]
    array = np.asarray(to_device(tensor.detach()._array, CPU))
    if field == "half_val":
        array = array.view(np.uint16)
    values = array.reshape(-1).tolist()
    return _summary(tag, "tensor", tensor=_tensor(dtype, field, values, tuple(tensor.shape)))


def histogram_raw(tag: str, **fields: Any) -> Any:
    """A histogram from its counts."""
    return _summary(tag, histo=proto("summary", "HistogramProto")(**fields))


def histogram(tag: str, values: Any, bins: Any, max_bins: int | None = None) -> Any:
    """A histogram of values."""
    flat = as_array(values).astype(float).reshape(-1)
    if flat.size == 0:
        raise ValueError("The input has no element.")
    counts, limits = np.histogram(flat, bins=bins)
    if max_bins is not None and len(counts) > max_bins:
        joined = len(counts) // max_bins
        counts = np.pad(counts, (0, -len(counts) % joined)).reshape(-1, joined).sum(-1)
        limits = np.append(limits[:-1:joined], limits[-1])
    filled = np.flatnonzero(counts)
    if not filled.size:
        raise ValueError("The histogram is empty: no value lies in the bins.")
    start, end = int(filled[0]), int(filled[-1]) + 1
    # TensorBoard has only right limits: that of an empty bin is the left limit of the first
    counts = counts[start - 1 : end] if start else np.concatenate([[0], counts[:end]])
    return histogram_raw(
        tag,
        min=flat.min(),
        max=flat.max(),
        num=len(flat),
        sum=flat.sum(),
        sum_squares=flat.dot(flat),
        bucket_limit=limits[start : end + 1].tolist(),
        bucket=counts.tolist(),
    )


# -- images, audio and text ------------------------------------------------------------------------


def _grid(images: Any) -> Any:
    """Images (N, C, H, W) in a grid, as one image (C, rows * H, columns * W)."""
    count, channels, height, width = images.shape
    if channels == 1:
        images, channels = np.concatenate([images] * 3, 1), 3
    columns = min(count, 8)
    rows = -(-count // columns)
    canvas = np.zeros((channels, height * rows, width * columns), images.dtype)
    for i, image in enumerate(images):
        y, x = divmod(i, columns)
        canvas[:, y * height : (y + 1) * height, x * width : (x + 1) * width] = image
    return canvas


def as_picture(values: Any, dataformats: str) -> Any:
    """An image, or several as a grid, as uint8 of shape (H, W, 3)."""
    array = as_array(values)
    order = dataformats.upper()
    assert len(set(order)) == len(order), f"a dimension is named twice: {dataformats}"
    assert array.ndim == len(order), (
        f"dataformats={dataformats!r} has a letter for each dimension, and the shape is "
        f"{array.shape}"
    )
    scale = 1 if array.dtype == np.uint8 else 255
    if len(order) == 4:
        array = _grid(array.transpose([order.find(c) for c in "NCHW"])).transpose(1, 2, 0)
    elif len(order) == 3:
        array = array.transpose([order.find(c) for c in "HWC"])
        if array.shape[2] == 1:
            array = np.concatenate([array] * 3, 2)
    else:
        array = np.stack([array.transpose([order.find(c) for c in "HW"])] * 3, 2)
    return (array.astype(np.float32) * scale).clip(0, 255).astype(np.uint8)


def image(
    tag: str,
    values: Any,
    dataformats: str,
    rescale: float = 1,
    boxes: Any = None,
    labels: list[str] | None = None,
) -> Any:
    """An image, optionally with boxes (left, top, right, bottom)."""
    pictures = import_module("PIL.Image")
    array = as_picture(values, dataformats)
    height, width, channels = array.shape
    picture = pictures.fromarray(array)
    if boxes is not None:
        draw = import_module("PIL.ImageDraw").Draw(picture)
        for i, (left, top, right, bottom) in enumerate(as_array(boxes).reshape(-1, 4).tolist()):
            edges = [(left, top), (left, bottom), (right, bottom), (right, top), (left, top)]
            draw.line(edges, width=2, fill="Red")
            if labels is not None:
                draw.text((left, bottom), labels[i], fill="black")
    size = int(width * rescale), int(height * rescale)
    output = io.BytesIO()
    picture.resize(size, pictures.Resampling.LANCZOS).save(output, format="PNG")
    return _image_summary(tag, height, width, channels, output.getvalue())


def _image_summary(tag: str, height: int, width: int, channels: int, encoded: bytes) -> Any:
    kind = proto("summary", "Summary").Image
    message = kind(height=height, width=width, colorspace=channels, encoded_image_string=encoded)
    return _summary(tag, image=message)


def video(tag: str, values: Any, fps: float = 4) -> Any:
    """Videos of shape (N, T, C, H, W), side by side in one animated GIF."""
    array = as_array(values)
    scale = 1 if array.dtype == np.uint8 else 255
    frames = array.transpose(1, 0, 2, 3, 4)
    pictures = import_module("PIL.Image")
    shown = [_grid(frame).transpose(1, 2, 0) for frame in frames]
    made = [
        pictures.fromarray((f.astype(np.float32) * scale).clip(0, 255).astype(np.uint8))
        for f in shown
    ]
    output = io.BytesIO()
    made[0].save(
        output,
        format="GIF",
        save_all=True,
        append_images=made[1:],
        duration=1000 / fps,
        loop=0,
    )
    height, width, channels = shown[0].shape
    return _image_summary(tag, height, width, channels, output.getvalue())


def audio(tag: str, values: Any, sample_rate: int = 44100) -> Any:
    """Audio: amplitudes between -1 and 1."""
    array = as_array(values).squeeze()
    assert array.ndim == 1, f"audio must be a vector, got {array.ndim} dimensions"
    samples = (array.clip(-1, 1) * np.iinfo(np.int16).max).astype("<i2")
    output = io.BytesIO()
    with wave.open(output, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate)
        file.writeframes(samples.tobytes())
    message = proto("summary", "Summary").Audio(
        sample_rate=sample_rate,
        num_channels=1,
        length_frames=len(samples),
        encoded_audio_string=output.getvalue(),
        content_type="audio/wav",
    )
    return _summary(tag, audio=message)


def text(tag: str, content: str) -> Any:
    """A text in Markdown."""
    about = import_module("tensorboard.plugins.text.plugin_data_pb2").TextPluginData(version=0)
    tensor = _tensor("DT_STRING", "string_val", [content.encode()], (1,))
    return _summary(f"{tag}/text_summary", "text", about.SerializeToString(), tensor=tensor)


# -- plugins ---------------------------------------------------------------------------------------


def pr_curve(tag: str, labels: Any, predictions: Any, thresholds: int, weights: Any) -> Any:
    """Precision and recall of predictions from 0 to 1, at evenly spaced thresholds."""
    thresholds = min(thresholds, 127)  # the most that the message can count
    truth = as_array(labels).astype(np.float64)
    weight = 1.0 if weights is None else weights
    places = np.floor(as_array(predictions) * (thresholds - 1)).astype(np.int32)
    limits = (0, thresholds - 1)
    hits, misses = (
        np.histogram(places, thresholds, limits, weights=w)[0]
        for w in (truth * weight, (1.0 - truth) * weight)
    )
    tp, fp = np.cumsum(hits[::-1])[::-1], np.cumsum(misses[::-1])[::-1]
    tn, fn = fp[0] - fp, tp[0] - tp
    precision = tp / np.maximum(1e-7, tp + fp)
    recall = tp / np.maximum(1e-7, tp + fn)
    return pr_curve_raw(tag, (tp, fp, tn, fn, precision, recall), thresholds)


def pr_curve_raw(tag: str, rows: Any, thresholds: int) -> Any:
    """A precision-recall curve from its counts."""
    data = np.stack([as_array(row) for row in rows])
    kind = import_module("tensorboard.plugins.pr_curve.plugin_data_pb2").PrCurvePluginData
    about = kind(version=0, num_thresholds=min(thresholds, 127)).SerializeToString()
    tensor = _tensor("DT_FLOAT", "float_val", data.reshape(-1).tolist(), data.shape)
    return _summary(tag, "pr_curves", about, tensor=tensor)


def custom_scalars(layout: dict[str, dict[str, Any]]) -> Any:
    """A layout of charts with several scalars: {category: {title: [kind, tags]}}."""
    layouts = import_module("tensorboard.plugins.custom_scalar.layout_pb2")
    categories = []
    for category, charts in layout.items():
        made = []
        for title, (kind, tags) in charts.items():
            if kind == "Margin":
                assert len(tags) == 3, f"a margin chart has 3 tags, got {len(tags)}"
                content = layouts.MarginChartContent
                series = content.Series(value=tags[0], lower=tags[1], upper=tags[2])
                made.append(layouts.Chart(title=title, margin=content(series=[series])))
            else:
                lines = layouts.MultilineChartContent(tag=tags)
                made.append(layouts.Chart(title=title, multiline=lines))
        categories.append(layouts.Category(title=category, chart=made))
    written = layouts.Layout(category=categories).SerializeToString()
    tensor = _tensor("DT_STRING", "string_val", [written], ())
    return _summary("custom_scalars__config__", "custom_scalars", tensor=tensor)


def mesh(tag: str, vertices: Any, colors: Any, faces: Any, config: Any) -> Any:
    """A 3D mesh."""
    meshes = import_module("tensorboard.plugins.mesh.plugin_data_pb2").MeshPluginData
    metadata = import_module("tensorboard.plugins.mesh.metadata")
    given = [
        (x, kind)
        for x, kind in ((vertices, meshes.VERTEX), (faces, meshes.FACE), (colors, meshes.COLOR))
        if x is not None
    ]
    components = metadata.get_components_bitmask([kind for _, kind in given])
    settings = json.dumps({} if config is None else config, sort_keys=True)
    message = proto("summary", "Summary")
    made = []
    for values, kind in given:
        array = as_array(values)
        tensor = _tensor("DT_FLOAT", "float_val", array.reshape(-1).tolist(), array.shape)
        about = metadata.create_summary_metadata(
            tag, None, kind, components, array.shape, None, json_config=settings
        )
        name = metadata.get_instance_name(tag, kind)
        made.append(message.Value(tag=name, metadata=about, tensor=tensor))
    return message(value=made)


def hparams(parameters: dict[str, Any], metrics: dict[str, Any], domains: Any) -> list[Any]:
    """The hyperparameters of a run, and metrics to compare runs by: three messages."""
    api = import_module("tensorboard.plugins.hparams.api_pb2")
    plugin = import_module("tensorboard.plugins.hparams.plugin_data_pb2")
    metadata = import_module("tensorboard.plugins.hparams.metadata")
    struct = import_module("google.protobuf.struct_pb2")
    domains = domains or {}
    for name, values in domains.items():
        wanted = type(parameters.get(name))
        if name not in parameters or not all(isinstance(v, wanted) for v in values):
            raise TypeError(
                f"hparam_domain_discrete[{name!r}] must be a list of values of the type of "
                f"hparam_dict[{name!r}]"
            )
    start = plugin.SessionStartInfo()
    infos = []
    for name, value in parameters.items():
        if value is None:
            continue
        if isinstance(value, (int, float)) or (isinstance(value, Tensor) and value.numel() == 1):
            field, kind = "number_value", "DATA_TYPE_FLOAT64"
            value = float(value)
        elif isinstance(value, str):
            field, kind = "string_value", "DATA_TYPE_STRING"
        else:
            raise ValueError(
                "a hyperparameter must be an int, float, str, bool or Tensor, got "
                f"{type(value).__name__}"
            )
        setattr(start.hparams[name], field, value)
        domain = None
        if name in domains:
            domain = struct.ListValue(values=[struct.Value(**{field: v}) for v in domains[name]])
        infos.append(
            api.HParamInfo(name=name, type=api.DataType.Value(kind), domain_discrete=domain)
        )
    named = [api.MetricInfo(name=api.MetricName(tag=tag)) for tag in metrics]
    experiment = api.Experiment(hparam_infos=infos, metric_infos=named)
    end = plugin.SessionEndInfo(status=api.Status.Value("STATUS_SUCCESS"))
    messages = []
    for tag, content in (
        (metadata.EXPERIMENT_TAG, {"experiment": experiment}),
        (metadata.SESSION_START_INFO_TAG, {"session_start_info": start}),
        (metadata.SESSION_END_INFO_TAG, {"session_end_info": end}),
    ):
        data = plugin.HParamsPluginData(**content, version=metadata.PLUGIN_DATA_VERSION)
        messages.append(_summary(tag, metadata.PLUGIN_NAME, data.SerializeToString()))
    return messages
