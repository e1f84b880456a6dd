"""autolaunch: launch SGLang with the backends that work, and win, on the GPUs at hand.

Importing this package costs nothing: no SGLang, no torch, no command-line library.
"""

__version__ = "0.1.0"
