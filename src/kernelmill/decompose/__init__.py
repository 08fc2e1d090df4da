"""Take a model apart into layers, fusions and kernels, each a problem of its own, and prove that they make the model."""
