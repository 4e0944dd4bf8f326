"""kornia: filters, colours, geometry, features and losses of images."""

import kornia
import torch
from common import data, finish, record

image = data(2, 3, 16, 16).sigmoid().requires_grad_()
found = {
    "gray": kornia.color.rgb_to_grayscale(image),
    "hsv": kornia.color.rgb_to_hsv(image),
    "lab": kornia.color.rgb_to_lab(image),
    "blur": kornia.filters.gaussian_blur2d(image, (5, 5), (1.5, 1.5)),
    "sobel": kornia.filters.sobel(image),
    "median": kornia.filters.median_blur(image, (3, 3)),
    "rotated": kornia.geometry.rotate(image, torch.tensor([30.0, -45.0], dtype=torch.float64)),
    "resized": kornia.geometry.resize(image, (8, 12)),
    "pyramid": kornia.geometry.pyrdown(image),
    "dilated": kornia.morphology.dilation(image, torch.ones(3, 3, dtype=torch.float64)),
    "harris": kornia.feature.harris_response(kornia.color.rgb_to_grayscale(image)),
    "bright": kornia.enhance.adjust_brightness(image, 0.2),
    "ssim": kornia.metrics.ssim(image, image.flip(-1), 5),
}
record("found", found)
for name, value in found.items():
    (gradient,) = torch.autograd.grad((value * value).sum(), image, retain_graph=True)
    record(f"gradient.{name}", gradient)
points = data(2, 6, 2)
homography = kornia.geometry.find_homography_dlt(points, points * 2 + 1)
record("homography", homography)
record("warped", kornia.geometry.warp_perspective(image, homography, (16, 16)))
angles = data(3, 3)
matrices = kornia.geometry.axis_angle_to_rotation_matrix(angles)
record("rotation", matrices)
record("quaternion", kornia.geometry.rotation_matrix_to_quaternion(matrices))
record("losses", [kornia.losses.ssim_loss(image, image.flip(-2), 5),
                  kornia.losses.total_variation(image),
                  kornia.losses.psnr_loss(image, image.flip(-2), 1.0)])  # fmt: skip
finish()
