"""Training on many processes: data, sharded, tensor, sequence and pipeline parallelism.

Built on the collectives of `distributed/`. Public under PyTorch's paths: `nn.parallel`,
`distributed.optim`, `distributed.fsdp`, `distributed.tensor.parallel`, `distributed.pipelining`.
"""
