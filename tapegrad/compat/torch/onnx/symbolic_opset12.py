"""`torch.onnx.symbolic_opset12`: empty; programs are not exported."""
