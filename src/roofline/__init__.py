"""roofline: how far an accelerator program is from what the hardware allows."""
