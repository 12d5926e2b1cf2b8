"""Triton kernels of the patches, imported only where they are bound.

With TRITON_INTERPRET=1 set before the import they run on CPU tensors, for tests at small shapes.
"""
