"""open_clip: two towers from a configuration, the contrastive loss, steps, files, the tokenizer."""

import tempfile
from pathlib import Path

import open_clip
import torch
from common import data, finish, prepared, record, record_step
from open_clip.loss import ClipLoss, SigLipLoss

TEXT = {"context_length": 12, "vocab_size": 60, "width": 16, "heads": 2, "layers": 2}
VISION = {"image_size": 16, "layers": 2, "width": 16, "head_width": 8, "patch_size": 8}
image, text = data(4, 3, 16, 16), data(4, 12, low=1, high=59)
text[:, -1] = 59
for name, vision in (
    ("vit", VISION),
    ("resnet", {**VISION, "layers": [1, 1, 1, 1], "image_size": 64, "width": 8}),
    ("timm", {"image_size": 32, "timm_model_name": "resnet18", "timm_proj": "linear"}),
):
    kind = {"vit": open_clip.CLIP, "resnet": open_clip.CLIP, "timm": open_clip.CustomTextCLIP}[name]
    model = prepared(kind(embed_dim=8, vision_cfg=vision, text_cfg=TEXT)).eval()
    pictures = data(4, 3, vision["image_size"], vision["image_size"])
    out = model(pictures, text)
    record(f"{name}.features", list(out))
    record_step(f"{name}.image", model, model.encode_image(pictures, normalize=True))
    record_step(f"{name}.text", model, model.encode_text(text))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for i in range(3):
        optimizer.zero_grad()
        value = ClipLoss()(*model(pictures, text))
        value.backward()
        optimizer.step()
        record(f"{name}.loss.{i}", value)

model = prepared(
    open_clip.CLIP(embed_dim=8, vision_cfg=VISION, text_cfg=TEXT, init_logit_bias=-10.0)
)
out = model(image, text)
record("siglip", SigLipLoss()(out[0], out[1], out[2], out[3]))
with tempfile.TemporaryDirectory() as folder:
    torch.save({"state_dict": model.state_dict()}, Path(folder) / "clip.pt")
    again = open_clip.CLIP(embed_dim=8, vision_cfg=VISION, text_cfg=TEXT, init_logit_bias=-10.0)
    open_clip.load_checkpoint(again.double(), str(Path(folder) / "clip.pt"))
    record("saved", list(again.eval()(image, text)))
record("tokens", open_clip.tokenize(["a photo of a cat", "two dogs, running!"]))
model, _, preprocess = open_clip.create_model_and_transforms("RN50", pretrained=None)
record("count", sum(p.numel() for p in model.parameters()))
finish()
