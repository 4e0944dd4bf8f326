"""`torch.utils.data._utils`: the package of `collate`."""

MP_STATUS_CHECK_INTERVAL = 5.0
