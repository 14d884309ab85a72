"""What we saw of the market: observations and what follows from them. Pure."""
