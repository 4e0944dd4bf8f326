"""`torch.nn.modules.module`: names that packages import from there."""

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"
