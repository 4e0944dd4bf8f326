"""`tapegrad.__future__`: how conversions such as `module.to(...)` change a module.

Here they give each parameter new data and leave the parameter itself in place, which is PyTorch's
default too. PyTorch's other ways are refused.
"""

from __future__ import annotations


def _refuse(value: bool, what: str) -> None:
    if value:
        raise NotImplementedError(
            f"{what} does not exist in tapegrad: conversions leave parameters in place; make the "
            "optimizer after the conversion, or replace parameters yourself"
        )


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Accepts False: a conversion does not replace parameters by others."""
    _refuse(value, "overwriting the parameters of a module on conversion")


def get_overwrite_module_params_on_conversion() -> bool:
    """False: a conversion does not replace parameters by others."""
    return False


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Accepts False: a conversion does not swap the parameters with others."""
    _refuse(value, "swapping the parameters of a module on conversion")


def get_swap_module_params_on_conversion() -> bool:
    """False: a conversion does not swap the parameters with others."""
    return False
