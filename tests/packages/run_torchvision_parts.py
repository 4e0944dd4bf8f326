"""torchvision beside its models: transforms of both versions, parts of `ops`, drawing."""

import numpy as np
import torch
import torchvision
from common import data, finish, prepared, record, record_step
from PIL import Image
from torchvision import ops, tv_tensors
from torchvision.transforms import functional as F1
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F2

image = torch.sigmoid(data(3, 24, 20))
whole = (image * 255).to(torch.uint8)
picture = Image.fromarray(whole.permute(1, 2, 0).contiguous().numpy())
record("to_tensor", F1.to_tensor(picture))
record("pil", np.asarray(F1.to_pil_image(whole)))

for name, module in (("v1", F1), ("v2", F2)):
    for label, x in (("float", image), ("uint8", whole)):
        for what, call in (
            ("resize", lambda f, x: f.resize(x, [12, 15], antialias=True)),
            ("resized_crop", lambda f, x: f.resized_crop(x, 2, 3, 14, 12, [10, 10])),
            ("nearest", lambda f, x: f.resize(x, [30, 30], f.InterpolationMode.NEAREST)),
            ("bicubic", lambda f, x: f.resize(x, [30, 30], f.InterpolationMode.BICUBIC)),
            ("crop", lambda f, x: f.center_crop(x, [12, 12])),
            ("five", lambda f, x: f.five_crop(x, [8, 8])),
            ("flip", lambda f, x: f.vflip(f.hflip(x))),
            ("pad", lambda f, x: f.pad(x, [1, 2, 3, 4], padding_mode="reflect")),
            ("rotate", lambda f, x: f.rotate(x, 30.0, f.InterpolationMode.BILINEAR)),
            ("affine", lambda f, x: f.affine(x, 10.0, [2, 1], 1.2, [5.0, 3.0])),
            ("perspective", lambda f, x: f.perspective(
                x, [[0, 0], [19, 0], [19, 23], [0, 23]], [[1, 2], [17, 0], [18, 22], [2, 21]])),
            ("blur", lambda f, x: f.gaussian_blur(x, [5, 5], [1.0, 1.5])),
            ("gray", lambda f, x: f.rgb_to_grayscale(x, 3)),
            ("invert", lambda f, x: f.invert(x)),
            ("posterize", lambda f, x: f.posterize(x, 3) if x.dtype == torch.uint8 else x),
            ("solarize", lambda f, x: f.solarize(x, 100 if x.dtype == torch.uint8 else 0.4)),
            ("sharpness", lambda f, x: f.adjust_sharpness(x, 1.7)),
            ("autocontrast", lambda f, x: f.autocontrast(x)),
            ("equalize", lambda f, x: f.equalize(x) if x.dtype == torch.uint8 else x),
            ("brightness", lambda f, x: f.adjust_brightness(x, 1.3)),
            ("contrast", lambda f, x: f.adjust_contrast(x, 0.7)),
            ("saturation", lambda f, x: f.adjust_saturation(x, 1.5)),
            ("hue", lambda f, x: f.adjust_hue(x, 0.2)),
            ("gamma", lambda f, x: f.adjust_gamma(x, 0.8, 1.1)),
        ):  # fmt: skip
            if (name, label) == ("v1", "uint8") and what in ("resize", "resized_crop"):
                continue  # rounds float32 numbers, some of which are halves
            found = call(module, x)
            if what != "five" and found.dtype == torch.uint8:
                found = found.to(torch.int64)
            record(f"{name}.{label}.{what}", found)
    record(f"{name}.normalize", module.normalize(image, [0.4, 0.5, 0.6], [0.2, 0.3, 0.2]))
    record(f"{name}.erase", module.erase(image, 2, 3, 4, 5, torch.tensor(0.5)))

for transforms in (torchvision.transforms, v2):
    torch.manual_seed(0)
    chain = transforms.Compose([
        transforms.RandomResizedCrop(10), transforms.RandomHorizontalFlip(),
        transforms.ColorJitter(0.2, 0.2, 0.2, 0.1), transforms.RandomErasing(p=1.0),
        transforms.RandomRotation(10), transforms.RandomGrayscale(),
        transforms.Normalize([0.5] * 3, [0.2] * 3)])  # fmt: skip
    assert chain(image).shape == (3, 10, 10)
for kind in (v2.AutoAugment, v2.RandAugment, v2.TrivialAugmentWide, v2.AugMix):
    assert kind()(whole).shape == whole.shape
batch = v2.MixUp(num_classes=4)(data(4, 3, 8, 8), torch.arange(4))
assert batch[1].shape == (4, 4)

boxes = tv_tensors.BoundingBoxes([[2, 3, 10, 12], [5, 1, 15, 20]], format="XYXY",
                                 canvas_size=(24, 20))  # fmt: skip
mask = tv_tensors.Mask((image[:1] > 0.5).to(torch.uint8))
sample = {"image": tv_tensors.Image(image), "boxes": boxes, "mask": mask, "label": 3}
done = v2.Compose([v2.Resize((12, 10)), v2.CenterCrop(8), v2.ClampBoundingBoxes()])(sample)
record("sample", [done["image"], done["boxes"], done["mask"], done["label"]])
assert type(done["boxes"]) is tv_tensors.BoundingBoxes
record("boxes.flip", F2.horizontal_flip(boxes))
record("boxes.format", F2.convert_bounding_box_format(boxes, new_format="CXCYWH"))
assert type(boxes + 1) is torch.Tensor

a = torch.tensor([[0.0, 0, 10, 10], [2, 2, 8, 9], [4, 4, 20, 18]], dtype=torch.float64)
b = torch.tensor([[1.0, 1, 9, 11], [3, 0, 10, 10], [15, 15, 22, 20]], dtype=torch.float64)
a.requires_grad_()
for name, value in (
    ("iou", ops.box_iou(a, b)),
    ("giou", ops.generalized_box_iou(a, b)),
    ("diou", ops.distance_box_iou(a, b)),
    ("ciou", ops.complete_box_iou(a, b)),
    ("giou_loss", ops.generalized_box_iou_loss(a, b, reduction="sum")),
    ("diou_loss", ops.distance_box_iou_loss(a, b, reduction="mean")),
    ("ciou_loss", ops.complete_box_iou_loss(a, b)),
    ("area", ops.box_area(a)),
    ("convert", ops.box_convert(a, "xyxy", "cxcywh")),
    ("clip", ops.clip_boxes_to_image(a, (8, 8))),
):
    record(f"ops.{name}", value)
    record(f"ops.{name}.grad", torch.autograd.grad(value.sum(), a))
record("ops.masks", ops.masks_to_boxes(data(2, 9, 9) > 1))
record("ops.small", ops.remove_small_boxes(a, 6.5))
x = data(4, 5).requires_grad_()
value = ops.sigmoid_focal_loss(x, (data(4, 5, seed=1) > 0).double(), reduction="mean")
record("ops.focal", [value, *torch.autograd.grad(value, x)])
for name, layer, x in (
    ("misc", ops.Conv2dNormActivation(3, 4), data(2, 3, 8, 8)),
    ("squeeze", ops.SqueezeExcitation(4, 2), data(2, 4, 6, 6)),
    ("mlp", ops.MLP(6, [8, 3]), data(4, 6)),
    ("pyramid", ops.FeaturePyramidNetwork([4, 6], 5), None),
):
    layer = prepared(layer).eval()
    if x is None:
        out = layer({"a": data(1, 4, 8, 8), "b": data(1, 6, 4, 4)})
        out = out["a"]
    else:
        out = layer(x)
    record_step(f"layer.{name}", layer, out)
assert ops.stochastic_depth(data(4, 3), 0.5, "row", training=True).shape == (4, 3)
assert ops.DropBlock2d(0.3, 3)(data(2, 3, 8, 8)).shape == (2, 3, 8, 8)

record("grid", torchvision.utils.make_grid(torch.stack([image] * 5), nrow=3, normalize=True))
drawn = torchvision.utils.draw_bounding_boxes(whole, a.detach(), colors="red")
record("drawn", drawn.to(torch.int64))
record("masked", torchvision.utils.draw_segmentation_masks(
    whole, image[0] > 0.5, colors="blue").to(torch.int64))  # fmt: skip
finish()
