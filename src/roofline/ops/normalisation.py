"""Normalisations: FLOP per element besides those of layer norms and softmax, which `ops.elementwise` has as functions of rows."""

# Of batch norms, whose scales belong to channels. Training: sum; centre, square, sum; centre again is shared; times 1/σ, scale, shift.
# Inference: centre, times 1/σ, scale, shift. Gradient: two sums (one with the centred input: centre, multiply, 2 adds), then centre·a + b,
# subtract, times scale/σ.
BATCH_NORM_TRAINING, BATCH_NORM_INFERENCE, BATCH_NORM_GRADIENT = 7, 4, 8
# Of the gradients of norms of rows: x̂ is 2, the gradient times the scale 1, two sums over the row 3, the gradient of x 4, and those of
# scale (2) and shift (1); an RMS norm has no mean and no shift.
LAYER_NORM_GRADIENT, RMS_NORM_GRADIENT = 13, 9
