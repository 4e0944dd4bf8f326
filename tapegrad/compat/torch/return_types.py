"""`torch.return_types`: the classes of results with named fields."""

from ...ops.elementwise.parts import Mantissa as frexp
from ...ops.factors.orthogonal import Orthogonal as linalg_qr
from ...ops.factors.spectra import Eigenvectors as linalg_eigh
from ...ops.factors.spectra import SingularValues as linalg_svd
from ...ops.linalg.solving import SignAndLog as linalg_slogdet
from ...ops.reduce.largest import Extreme as max
from ...ops.reduce.scans import Bounds as aminmax
from ...ops.reduce.sorting import Sorted as sort

linalg_eig = linalg_eigh
median = min = mode = kthvalue = nanmedian = cummax = cummin = max
topk = sort
qr = linalg_qr
slogdet = linalg_slogdet

__all__ = ["aminmax", "frexp", "linalg_eig", "linalg_eigh", "linalg_qr", "linalg_slogdet"]
__all__ += ["linalg_svd", "max", "min", "sort", "topk"]
