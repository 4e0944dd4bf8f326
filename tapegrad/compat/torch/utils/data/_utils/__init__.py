"""`torch.utils.data._utils`: leads to `collate`."""

MP_STATUS_CHECK_INTERVAL = 5.0
