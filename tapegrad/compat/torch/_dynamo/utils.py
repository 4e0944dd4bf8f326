"""`torch._dynamo.utils`: queries about Dynamo."""


def is_compile_supported(device_type: str) -> bool:
    """False: there is no Dynamo."""
    return False
