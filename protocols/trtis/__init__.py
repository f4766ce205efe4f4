"""The TensorRT Inference Server, version 1: releases 1.0 to 1.15, before it was called Triton."""
