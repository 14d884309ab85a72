"""What AWS says about an instance, whichever channel says it, as typed notices. Pure."""
