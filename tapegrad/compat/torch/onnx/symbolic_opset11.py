"""`torch.onnx.symbolic_opset11`: empty; programs are not exported."""
