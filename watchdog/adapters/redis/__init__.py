"""The working record in Redis or Valkey."""
