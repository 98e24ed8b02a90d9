"""Fewer bytes for a tensor on a network, rebuilt to the bit: what others may use of it."""

from stoker.wire.lossless.codecs import Codec, Coded, decode, raw_nbytes, warm
from stoker.wire.lossless.encoder import MIN_NBYTES, Encoder, Worth

__all__ = ["MIN_NBYTES", "Codec", "Coded", "Encoder", "Worth", "decode", "raw_nbytes", "warm"]
