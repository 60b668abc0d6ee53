"""Reads a GGUF v3 file into metadata and float64 arrays. Trusts its input: it is for fixtures, not for users.

Dequantization follows the format's definition (a block is 32 values; scales are IEEE half):
  Q8_0  d, 32 x int8                      x = d * q
  Q4_0  d, 16 bytes of nibbles            x = d * (q - 8)
  Q4_1  d, m, 16 bytes of nibbles         x = d * q + m
The low nibbles of a 4-bit block hold its first half, the high nibbles its second.
"""
import struct

import numpy as np

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9


class Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, fmt):
        value = struct.unpack_from(fmt, self.data, self.at)[0]
        self.at += struct.calcsize(fmt)
        return value

    def string(self):
        n = self.take("<Q")
        self.at += n
        return bytes(self.data[self.at - n:self.at]).decode("utf-8")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            item, n = self.take("<I"), self.take("<Q")
            return [self.value(item) for _ in range(n)]
        return self.take(SCALARS[kind])


def _half(raw, column):
    """The IEEE half at byte `column` of each block, as a float64 column."""
    return raw[:, column:column + 2].copy().view("<f2").astype(np.float64)


def _nibbles(raw, column):
    q = raw[:, column:column + 16]
    return np.concatenate([q & 15, q >> 4], axis=1).astype(np.float64)


def _f32(raw):
    return raw.view("<f4").astype(np.float64)


def _f16(raw):
    return raw.view("<f2").astype(np.float64)


def _bf16(raw):
    return (raw.view("<u2").astype("<u4") << 16).view("<f4").astype(np.float64)


def _q4_0(raw):
    return _half(raw, 0) * (_nibbles(raw, 2) - 8)


def _q4_1(raw):
    return _half(raw, 0) * _nibbles(raw, 4) + _half(raw, 2)


def _q8_0(raw):
    return _half(raw, 0) * raw[:, 2:].copy().view(np.int8)


# GGML type number: (name, values a block, bytes a block, reader of uint8 [blocks, bytes])
TYPES = {0: ("F32", 1, 4, _f32), 1: ("F16", 1, 2, _f16), 2: ("Q4_0", 32, 18, _q4_0), 3: ("Q4_1", 32, 20, _q4_1),
         8: ("Q8_0", 32, 34, _q8_0), 30: ("BF16", 1, 2, _bf16)}


def read(path):
    """-> (metadata dict, {name: float64 array with the outermost dimension first}, {name: type name})"""
    data = np.memmap(path, dtype=np.uint8, mode="r")
    cur = Cursor(data)
    if cur.take("<I") != 0x46554747 or cur.take("<I") != 3:
        raise ValueError(f"{path}: not a GGUF v3 file")
    n_tensors, n_meta = cur.take("<Q"), cur.take("<Q")
    meta = {}
    for _ in range(n_meta):
        key = cur.string()
        meta[key] = cur.value(cur.take("<I"))
    heads = []
    for _ in range(n_tensors):
        name = cur.string()
        dims = [cur.take("<Q") for _ in range(cur.take("<I"))]
        heads.append((name, dims, cur.take("<I"), cur.take("<Q")))
    align = meta.get("general.alignment", 32)
    base = (cur.at + align - 1) // align * align
    tensors, types = {}, {}
    for name, dims, kind, offset in heads:
        types[name], per_block, block_bytes, reader = TYPES[kind]
        n_bytes = int(np.prod(dims)) // per_block * block_bytes
        raw = np.array(data[base + offset:base + offset + n_bytes]).reshape(-1, block_bytes)
        tensors[name] = reader(raw).reshape(dims[::-1])
    return meta, tensors, types
