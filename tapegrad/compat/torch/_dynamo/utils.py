"""`torch._dynamo.utils`: what packages ask of Dynamo."""


def is_compile_supported(device_type: str) -> bool:
    """False: there is no Dynamo."""
    return False
