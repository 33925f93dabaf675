"""Conformance suite of the hipFile contract, for the model, for its C ABI and for real hardware."""
