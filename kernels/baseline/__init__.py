"""The readable definition of every op in plain torch, for the CPU and for CUDA."""
