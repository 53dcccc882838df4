"""What tools/guest.py is made of: Debian packages, a cross build, an image, and a machine that runs it."""
