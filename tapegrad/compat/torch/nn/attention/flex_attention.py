"""`torch.nn.attention.flex_attention`: names only; attention with a mask does the same."""

from ....absent import absent, absent_class

_INSTEAD = "use scaled_dot_product_attention with attn_mask"
_DEFAULT_SPARSE_BLOCK_SIZE = 128

BlockMask = absent_class("torch.nn.attention.flex_attention.BlockMask", _INSTEAD)
AuxRequest = absent_class("torch.nn.attention.flex_attention.AuxRequest", _INSTEAD)
flex_attention = absent("torch.nn.attention.flex_attention.flex_attention", _INSTEAD)
create_block_mask = absent("torch.nn.attention.flex_attention.create_block_mask", _INSTEAD)
create_mask = absent("torch.nn.attention.flex_attention.create_mask", _INSTEAD)
and_masks = absent("torch.nn.attention.flex_attention.and_masks", _INSTEAD)
or_masks = absent("torch.nn.attention.flex_attention.or_masks", _INSTEAD)
