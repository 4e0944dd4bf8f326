"""`torch.onnx.symbolic_opset9`: a path; programs are not exported."""
