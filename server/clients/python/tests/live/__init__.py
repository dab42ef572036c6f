"""Uses the client with a real saggar-server. Run as `python3 -m live SERVER SAGGAR FOLDER` in the directory `tests`."""
