"""cuBLASLt and cuDNN, called from host programs."""
