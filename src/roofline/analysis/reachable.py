"""What good kernels reach of each roof: the distance to that can be won, the rest is inherent."""

REACHABLE = {"hbm": 0.9, "matrix": 0.8, "vector": 0.7}
# Fused attention waits for its softmax, a convolution gathers its windows, a sort passes over its keys many times, a Fourier transform
# several times; the steps of a factorisation or a solve wait for each other, whatever the chip could do meanwhile.
OF_CATEGORIES = {"attention": 0.55, "convolution": 0.6, "sort": 0.04, "fft": 0.12, "linear algebra": 0.001}
OTHERWISE = 0.85
