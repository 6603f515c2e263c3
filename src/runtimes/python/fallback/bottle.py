"""What functions import from `bottle`, for those that do not install it: it comes last in the search path."""

from function_server.bottle import *  # noqa: F401,F403
from function_server.bottle import __all__, __version__  # noqa: F401
