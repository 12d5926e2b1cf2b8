"""The ops in C for the CPU: compiled at first use, called through ctypes."""
