"""Make an unmodified PyTorch training script as fast as its accelerator allows.

Public API: everything that `__all__` names; all else may change without notice.
Importing this package never imports torch, and costs well under a millisecond.
"""

from stoker.errors import BrokenGuarantee, ClusterUnavailable, ConfigError, StokerError

__version__ = "0.1.0"

__all__ = [
    "BrokenGuarantee",
    "ClusterUnavailable",
    "ConfigError",
    "StokerError",
    "__version__",
]
