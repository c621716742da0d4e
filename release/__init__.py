"""What is released, and whether it works where it is installed. Not shipped."""
