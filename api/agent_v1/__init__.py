"""The agents' own contract, versioned apart (docs/protocols.md, section 3)."""
