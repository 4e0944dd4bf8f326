"""Models that are trained by many processes: divided by data, by parameters, by layers, in stages.

Built on the collectives of `distributed/`. Public under PyTorch's paths: `nn.parallel`,
`distributed.optim`, `distributed.fsdp`, `distributed.tensor.parallel`, `distributed.pipelining`.
"""
