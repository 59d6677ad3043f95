"""The ciphers of encrypted commit-log sections, by Java's names for them.

A section is cut into chunks; each is compressed with LZ4 and then encrypted, every one from the header's IV anew. The
package `cryptography` does the arithmetic; it comes with the extra `cassandra`, and only encrypted logs need it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import cramjam

from penstock.capture.cassandra.segments.compression import (
    SECTION_BYTES_MAX,
    compress_lz4,
    expand_lz4,
    padded,
    reachable,
)
from penstock.capture.cassandra.segments.segment import Encryption
from penstock.errors import KeyStoreError
from penstock.system.extras import install_line

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import Cipher

CHUNK_BYTES = 64 << 10
# Length of the ciphertext, and of what comes out of it before padding.
_LZ4 = "LZ4Compressor"
_CHUNK = struct.Struct(">ii")
_LENGTH = struct.Struct(">i")
_ALGORITHMS = ("AES", "DESede", "Blowfish")
_MODES = ("CBC", "CFB", "CFB8", "OFB", "CTR")


class SectionCipher:
    """One segment's cipher: key, IV and Java's name of the transformation."""

    def __init__(self, encryption: Encryption, key: bytes, file: str) -> None:
        parts = encryption.cipher.split("/")
        # Java reads a bare algorithm as ECB, which takes no IV, so that Cassandra cannot have written it.
        if len(parts) != 3:
            raise _unknown(encryption, file)
        algorithm, mode, padding = parts
        self._padded = padding.casefold() in ("pkcs5padding", "pkcs7padding")
        if not self._padded and padding.casefold() != "nopadding":
            raise _unknown(encryption, file)
        try:
            self._cipher, self._block_bits = _cipher(algorithm, mode, key, encryption.iv)
        except KeyError as error:
            raise _unknown(encryption, file) from error
        except ValueError as error:
            raise KeyStoreError(
                "the key or the IV does not fit the cipher", cipher=encryption.cipher, alias=encryption.alias, file=file
            ) from error

    def decrypt(self, data: memoryview) -> bytes:
        """One chunk, still padded as far as it was. Raises ValueError when the length does not fit."""
        made = self._cipher.decryptor()
        return made.update(data) + made.finalize()

    def encrypt(self, data: bytes) -> bytes:
        """One chunk. Modes that need whole blocks are padded as the transformation says."""
        if self._padded:
            block = self._block_bits // 8
            fill = block - len(data) % block
            data += bytes([fill]) * fill
        made = self._cipher.encryptor()
        return made.update(data) + made.finalize()


def decrypt_section(cipher: SectionCipher, data: memoryview, length: int) -> tuple[memoryview, str | None]:
    """The section from its chunks, and what was wrong with the first chunk that could not be read.

    From there on the section is zeros, which read as its end: the chunks before are good all the same. Raises
    ValueError when not even the length can be.
    """
    if not 0 <= length <= SECTION_BYTES_MAX:
        raise ValueError(f"a section of {length} bytes is longer than {SECTION_BYTES_MAX}")
    out = bytearray()
    problem = None
    try:
        at = 0
        while at < len(data) and len(out) < length:
            at += _decrypt_chunk(cipher, data[at:], out, length - len(out))
    except (ValueError, struct.error, cramjam.DecompressionError) as error:
        problem = str(error) or type(error).__name__
    if problem is None and len(out) != length:
        problem = f"the chunks have {len(out)} bytes where {length} were announced"
    return padded(out, length), problem


def _decrypt_chunk(cipher: SectionCipher, data: memoryview, out: bytearray, room: int) -> int:
    """Append one chunk to `out`; how many bytes it took."""
    size: int
    size, compressed = _CHUNK.unpack_from(data)
    end = _CHUNK.size + size
    if not _LENGTH.size <= compressed <= size <= len(data) - _CHUNK.size:
        raise ValueError(f"a chunk of {size} bytes with {compressed} in it, where {len(data)} are left")
    plain = memoryview(cipher.decrypt(data[_CHUNK.size : end]))[:compressed]
    (raw,) = _LENGTH.unpack_from(plain)
    # The section's length has no checksum: a chunk that goes beyond it is cut later.
    if not 0 <= raw <= min(max(room, CHUNK_BYTES), reachable(_LZ4, len(plain))):
        raise ValueError(f"a chunk gives {raw} bytes where {room} are wanted")
    chunk = bytearray(raw)
    expand_lz4(plain[_LENGTH.size :], chunk)
    out += chunk
    return end


def encrypt_section(cipher: SectionCipher, data: bytes) -> bytes:
    """The chunks of a section, as Cassandra writes them."""
    out = bytearray()
    for start in range(0, len(data), CHUNK_BYTES):
        chunk = data[start : start + CHUNK_BYTES]
        plain = _LENGTH.pack(len(chunk)) + compress_lz4(chunk)
        sealed = cipher.encrypt(plain)
        out += _CHUNK.pack(len(sealed), len(plain)) + sealed
    return bytes(out)


def _cipher(algorithm: str, mode: str, key: bytes, iv: bytes) -> tuple[Cipher[Any], int]:
    algorithms, modes = _library()
    made = algorithms[algorithm.casefold()](key)
    return _new_cipher(made, modes[mode.casefold()](iv)), made.block_size


def _new_cipher(algorithm: Any, mode: Any) -> Cipher[Any]:
    from cryptography.hazmat.primitives.ciphers import Cipher

    return Cipher(algorithm, mode)


def _library() -> tuple[dict[str, Any], dict[str, Any]]:
    """The classes of `cryptography` by Java's names in small letters."""
    try:
        from cryptography.hazmat.decrepit.ciphers import algorithms as old
        from cryptography.hazmat.decrepit.ciphers import modes as old_modes
        from cryptography.hazmat.primitives.ciphers import algorithms, modes
    except ImportError as error:
        message = f"reading encrypted logs needs the package cryptography: {install_line(['cassandra'])}"
        raise KeyStoreError(message) from error
    known = {"aes": algorithms.AES, "desede": old.TripleDES, "blowfish": old.Blowfish}
    return known, {
        "cbc": modes.CBC,
        "ctr": modes.CTR,
        "cfb": old_modes.CFB,
        "cfb8": old_modes.CFB8,
        "ofb": old_modes.OFB,
    }


def _unknown(encryption: Encryption, file: str) -> KeyStoreError:
    known = f"{', '.join(_ALGORITHMS)} in the modes {', '.join(_MODES)}"
    return KeyStoreError(f"the cipher is not known; {known} are", cipher=encryption.cipher, file=file)
