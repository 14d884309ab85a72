"""The migration saga: steps, facts, how facts change a migration, and what to do next. Pure."""
