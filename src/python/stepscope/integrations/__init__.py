"""Callbacks for training frameworks: ``integrations.hf`` (transformers) and ``integrations.lightning``."""
