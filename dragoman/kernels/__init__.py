"""The few operations that need their own GPU code, each beside its plain PyTorch reference."""
