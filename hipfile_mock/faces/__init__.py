"""What a program sees of the model: one package a face. Nothing is imported until a face is installed."""
