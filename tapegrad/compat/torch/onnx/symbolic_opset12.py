"""`torch.onnx.symbolic_opset12`: a path; programs are not exported."""
