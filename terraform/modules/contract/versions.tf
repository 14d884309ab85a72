terraform {
  # No provider: everything here is a value, so it is tested without AWS and without a download.
  required_version = ">= 1.7"
}
