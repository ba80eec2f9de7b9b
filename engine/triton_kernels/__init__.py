"""Kernels of our own for NVIDIA cards, compiled by Triton on this machine. Only these modules import it.

They know pointers, strides and rows; they know neither layers nor sequences. In Triton's interpreter they also run on
a CPU, slowly: that is how they are tested without a card.
"""
