"""What is released, whether it works where it is installed, and the site's pictures. Not shipped."""
