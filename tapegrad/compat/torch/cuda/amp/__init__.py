"""`torch.cuda.amp`: parts that older code imports."""
