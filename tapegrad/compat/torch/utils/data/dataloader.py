"""`torch.utils.data.dataloader`: the classes of iterators, which packages ask for."""

from .....data.iterate import ParallelIterator, SerialIterator

_BaseDataLoaderIter = (SerialIterator, ParallelIterator)
_SingleProcessDataLoaderIter = SerialIterator
_MultiProcessingDataLoaderIter = ParallelIterator
