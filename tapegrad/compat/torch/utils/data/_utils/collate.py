"""`torch.utils.data._utils.collate`: how samples become a batch."""

import re

from ......data import default_collate, default_convert

__all__ = ["default_collate", "default_convert"]

#: letters of NumPy dtypes that cannot become tensors: text and objects
np_str_obj_array_pattern = re.compile(r"[aOSU]")

default_collate_err_msg_format = (
    "a batch is made of tensors, arrays, numbers, dicts and lists; found {}"
)
