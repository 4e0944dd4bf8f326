"""`torch.onnx.symbolic_opset9`: empty; programs are not exported."""
