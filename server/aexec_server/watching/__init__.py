"""What a server counts and logs about itself."""
