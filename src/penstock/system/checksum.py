"""CRC-32, the one checksum of every format here: ISA-L's where it is installed (fourteen times as fast), else zlib's.

Both compute the same function, so files do not depend on which of the two was at hand.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
