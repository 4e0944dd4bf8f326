"""`torch.onnx.symbolic_opset11`: a path; programs are not exported."""
