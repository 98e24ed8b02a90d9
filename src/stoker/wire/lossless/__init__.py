"""Compresses tensors for a network, rebuilt to the bit: the names that other packages may use."""

from stoker.wire.lossless.codecs import Codec, Coded, decode, raw_nbytes, warm
from stoker.wire.lossless.encoder import MIN_NBYTES, Encoder, Worth

__all__ = ["MIN_NBYTES", "Codec", "Coded", "Encoder", "Worth", "decode", "raw_nbytes", "warm"]
